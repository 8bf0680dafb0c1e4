"""Why a sign-in with the provider ends without a session."""

from hifi.runtime.errors import HifiError


class SignInRefused(HifiError):
    """The provider does not say, or does not prove, who it is.

    Attributes:
        status: of the answer.
    """

    status = 401


class NotAllowed(SignInRefused):
    """The provider says who it is, and that is nobody who may sign in here."""

    status = 403
