"""Sign-ins with the provider that have begun, each bound to its browser, and the person with whom one ends."""

import base64
import hashlib
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from hifi.control.principals.oidc.refusals import NotAllowed, SignInRefused
from hifi.control.principals.oidc.roles import groups, person_name, principals_of
from hifi.control.principals.oidc.settings import OidcSettings
from hifi.control.principals.person import Person, ProviderSession
from hifi.runtime.clock import MICROSECONDS, monotonic_s, now_us
from hifi.runtime.errors import HifiError
from hifi.runtime.settings import load

if TYPE_CHECKING:
    from hifi.control.principals.oidc.provider import Provider

LONGEST_S: Final = 12 * 3600.0
PENDING_S: Final = 600.0
"""Time in which a person signs in at the provider."""
_MOST: Final = 1000
"""Sign-ins that have begun; more forget the oldest."""


@dataclass(frozen=True, slots=True)
class _PendingSignIn:
    """A sign-in that has begun."""

    browser: str
    nonce: str
    verifier: str
    redirect_uri: str
    next_page: str
    ends_s: float


@dataclass(frozen=True, slots=True)
class StartedSignIn:
    """The URL to which the browser is sent, and the secret by which it is known when it comes back."""

    url: str
    browser: str


@dataclass(frozen=True, slots=True)
class CompletedSignIn:
    """The person who has signed in, and the page to go to."""

    person: Person
    next_page: str


class OidcLogin:
    """Signs people in with a provider.

    Args:
        settings: of sign-in.
        provider: that they name.
    """

    def __init__(self, settings: OidcSettings, provider: "Provider") -> None:
        self._settings = settings
        self._provider = provider
        self._pending_by_state: dict[str, _PendingSignIn] = {}
        """By `state`, oldest first."""
        self._ended_meanwhile: list[list[ProviderSession]] = []
        """For each sign-in that ends now, the sessions that the provider has ended since that began."""

    @property
    def issuer(self) -> str:
        """The provider's URL."""
        return self._settings.issuer

    async def begin(self, redirect_uri: str, next_page: str) -> StartedSignIn:
        """Begin a sign-in.

        Args:
            redirect_uri: to which the provider sends the browser back.
            next_page: page to show then.

        Raises:
            Retryable: the provider does not answer.
        """
        state, nonce, verifier, browser = (secrets.token_urlsafe(32) for _ in range(4))
        challenge = base64.urlsafe_b64encode(hashlib.sha256(verifier.encode()).digest()).rstrip(b"=").decode()
        url = await self._provider.authorization_url(redirect_uri, state, nonce, challenge)
        while len(self._pending_by_state) >= _MOST:
            del self._pending_by_state[next(iter(self._pending_by_state))]
        self._pending_by_state[state] = _PendingSignIn(
            browser, nonce, verifier, redirect_uri, next_page, monotonic_s() + PENDING_S
        )
        return StartedSignIn(url, browser)

    async def end(self, parameters: Mapping[str, str], browser: str) -> CompletedSignIn:
        """End a sign-in with the answer that the browser brings.

        Args:
            parameters: of the answer.
            browser: secret of the browser that began it.

        Raises:
            SignInRefused: the answer is not that of a sign-in of this browser, or the provider refuses.
            NotAllowed: the person has no role.
            Misconfigured: the provider refuses the client.
            Retryable: the provider does not answer.
        """
        ended_sessions: list[ProviderSession] = []
        self._ended_meanwhile.append(ended_sessions)
        try:
            completed_sign_in = await self._complete(parameters, browser)
        finally:
            self._ended_meanwhile = [
                sessions for sessions in self._ended_meanwhile if sessions is not ended_sessions
            ]
        if any(map(completed_sign_in.person.at_provider.ends_with, ended_sessions)):
            raise SignInRefused("the provider has signed the person out meanwhile")
        return completed_sign_in

    async def _complete(self, parameters: Mapping[str, str], browser: str) -> CompletedSignIn:
        sign_in = self._pending_by_state.pop(parameters.get("state", ""), None)
        if (
            sign_in is None
            or sign_in.ends_s <= monotonic_s()
            or not secrets.compare_digest(sign_in.browser.encode(), browser.encode())
        ):
            raise SignInRefused("this browser began no such sign-in, or more than ten minutes ago")
        metadata = await self._provider.metadata()
        answers_with_issuer = metadata.get("authorization_response_iss_parameter_supported") is True
        if parameters.get("iss", None if answers_with_issuer else self.issuer) != self.issuer:  # RFC 9207
            raise SignInRefused("the answer comes from another provider")
        if "error" in parameters:
            raise SignInRefused(
                f"the provider answers {parameters['error']}: {parameters.get('error_description', '')}"
            )
        claims = await self._provider.claims(
            parameters.get("code", ""), sign_in.redirect_uri, sign_in.verifier, sign_in.nonce
        )
        return CompletedSignIn(self._person(claims), sign_in.next_page)

    async def sign_out_url(self, return_to: str) -> str | None:
        """The URL to sign out of the provider; None: it has no such page, or does not answer."""
        try:
            return await self._provider.sign_out_url(return_to)
        except HifiError:
            return None

    async def ended_session(self, token: str) -> ProviderSession:
        """The session that the provider's logout token ends.

        Raises:
            SignInRefused: the token is not valid.
            Retryable: the provider does not answer.
        """
        ended_session = await self._provider.ended_session(token)
        for ended_sessions in self._ended_meanwhile:
            ended_sessions.append(ended_session)
        return ended_session

    def _person(self, claims: Mapping[str, Any]) -> Person:
        settings, at_us = self._settings, now_us()
        name = person_name(claims, settings.name_claim)
        if name is None:
            raise NotAllowed(
                f"the provider gives no usable claim {settings.name_claim!r}, which is to be the name"
            )
        life_s = settings.session_s or max(min(claims["exp"] - at_us / MICROSECONDS, LONGEST_S), 0.0)
        principals = principals_of(
            name,
            groups(claims, settings.roles_claim),
            settings.roles,
            author=settings.issuer,
            at_us=at_us,
            expires_us=at_us + int(life_s * MICROSECONDS),
        )
        if not principals:
            raise NotAllowed(f"{name} is in no group that has a role here")
        session_id = claims.get("sid")
        at_provider = ProviderSession(claims["sub"], session_id if isinstance(session_id, str) else "")
        return Person(name, principals, life_s, at_provider)


def configured_login() -> OidcLogin | None:
    """Sign-in with the provider of this process's environment; None: there is none.

    Raises:
        Misconfigured: a setting is wrong.
    """
    settings = load(OidcSettings)
    if not settings.issuer:
        return None
    from hifi.control.principals.oidc.provider import Provider  # its libraries are needed only here

    return OidcLogin(settings, Provider(settings))
