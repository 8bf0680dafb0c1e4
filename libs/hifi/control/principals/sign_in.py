"""The pages of a console on which people sign in and out: with a provider, a token, or a link that works once."""

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Annotated, Final
from urllib.parse import parse_qs, quote, urlsplit

from pydantic import Field
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import BaseRoute, Route
from typing_extensions import TypedDict

from hifi.control.principals.gate import Gate, Needs, cookie_name
from hifi.control.principals.oidc.login import PENDING_S, OidcLogin
from hifi.control.principals.oidc.refusals import SignInRefused
from hifi.control.principals.principal import Principal
from hifi.control.principals.sessions import SESSION_S
from hifi.runtime import log
from hifi.runtime.clock import now_us
from hifi.runtime.console.console_pages import ConsolePages
from hifi.runtime.errors import Misconfigured, Retryable
from hifi.runtime.http.openapi import Operation, json_response
from hifi.runtime.http.problem import Problem, retry_later

PATH: Final = "/sign-in"
PROVIDER_PATH: Final = f"{PATH}/oidc"
CALLBACK_PATH: Final = f"{PROVIDER_PATH}/callback"
LOGOUT_PATH: Final = f"{PROVIDER_PATH}/backchannel-logout"
_BODY_BYTES: Final = 4096
_LOGOUT_BYTES: Final = 16 * 1024

logger = log.get(__name__)


class LinkJson(TypedDict):
    """A link that opens the console signed in."""

    path: Annotated[str, Field(description="To be appended to the URL of the console.")]


Handler = Callable[[Request, Principal], Awaitable[Response]]


def link_response(gate: Gate, request: Request, principal: Principal) -> Response:
    """A link that opens the console signed in as a principal.

    Raises:
        Problem: 403, the caller sent no token but the cookie of a session, which a link would outlive.
    """
    if "authorization" not in request.headers:
        raise Problem(403, "Only a principal that sends its token makes links.")
    answer: LinkJson = {"path": f"{PATH}#{gate.sessions.new_link(principal)}"}
    return json_response(answer)


class SignIn:
    """Routes of the pages, and guards of all others.

    Args:
        gate: of the service.
        pages: of its console.
        login: with a provider; None: there is none.
        url: of the console, as browsers see it; empty: as each request has it.
    """

    def __init__(
        self, gate: Gate, pages: ConsolePages, login: OidcLogin | None = None, url: str = ""
    ) -> None:
        self._gate = gate
        self._pages = pages
        self._login = login
        self._url = url.rstrip("/")

    def routes(self) -> list[BaseRoute]:
        """Routes to sign in and out."""
        return [
            Route(PATH, self.sign_in, methods=["GET"], name="sign_in"),
            Route(PATH, self.sign_in_with, methods=["POST"], name="sign_in_with"),
            Route(PROVIDER_PATH, self.sign_in_at_provider, methods=["GET"], name="sign_in_at_provider"),
            Route(CALLBACK_PATH, self.provider_answer, methods=["GET"], name="provider_answer"),
            Route(LOGOUT_PATH, self.provider_signs_out, methods=["POST"], name="provider_signs_out"),
            Route("/sign-out", self.sign_out, methods=["POST"], name="sign_out"),
        ]

    def operations(
        self, operations: Iterable[Operation], api: object, requirements: Mapping[str, Needs]
    ) -> list[BaseRoute]:
        """A route of each operation of an API, whose handler is the method with its name."""
        return [
            self.api(
                operation.path, operation.name, getattr(api, operation.name), requirements, operation.method
            )
            for operation in operations
        ]

    def api(
        self, path: str, name: str, handler: Handler, requirements: Mapping[str, Needs], method: str
    ) -> Route:
        """A route of the API: others than principals of its role get 401 or 403."""

        async def guarded(request: Request) -> Response:
            """Handle the request as its principal."""
            return await handler(request, self._gate.principal(request, requirements[name]))

        assert name in requirements
        return Route(path, guarded, methods=[method], name=name)

    def page(self, path: str, name: str, handler: Handler, requirements: Mapping[str, Needs]) -> Route:
        """A route of a page: a browser that is not signed in is sent to the page to sign in."""

        async def guarded(request: Request) -> Response:
            """Show the page to its principal."""
            try:
                principal = self._gate.principal(request, requirements[name])
            except Problem as problem:
                if problem.status == 401:
                    query = f"?{request.url.query}" if request.url.query else ""
                    return RedirectResponse(f"{PATH}?next={quote(request.url.path + query)}", 303)
                return self._pages.page(
                    "refused.html", problem.title, {"detail": problem.detail}, {}, problem.status
                )
            return await handler(request, principal)

        assert name in requirements
        return Route(path, guarded, methods=["GET"], name=name)

    async def sign_in(self, request: Request) -> Response:
        """The page to sign in. After signing out it leads to where the person signs out of the provider, too."""
        sign_out_url = None
        if self._login is not None and "signed-out" in request.query_params:
            sign_out_url = await self._login.sign_out_url(self._base(request) + PATH)
        return self._page(_local_path(request.query_params.get("next", "/")), sign_out_url=sign_out_url)

    async def sign_in_at_provider(self, request: Request) -> Response:
        """Send the browser to the provider."""
        next_page = _local_path(request.query_params.get("next", "/"))
        if self._login is None:
            return self._page(next_page, "There is no provider with which to sign in.", 404)
        base_url = self._base(request)
        # A cookie of another host would not come back.
        if urlsplit(base_url).netloc != request.headers["host"]:
            return RedirectResponse(base_url + self._provider_path(next_page), 303)
        try:
            started_sign_in = await self._login.begin(base_url + CALLBACK_PATH, next_page)
        except (Retryable, Misconfigured) as error:
            return self._no_provider(next_page, error)
        response = RedirectResponse(started_sign_in.url, 303, {"cache-control": "no-store"})
        response.set_cookie(
            _pending_cookie(request),
            started_sign_in.browser,
            max_age=int(PENDING_S),
            path=PROVIDER_PATH,
            secure=base_url.startswith("https:"),
            httponly=True,
            samesite="lax",
        )
        return response

    async def provider_answer(self, request: Request) -> Response:
        """Begin a session for the person whom the provider names."""
        if self._login is None:
            return self._page("/", "There is no provider with which to sign in.", 404)
        try:
            self._gate.require_read(fresh=True)
            completed_sign_in = await self._login.end(
                request.query_params, request.cookies.get(_pending_cookie(request), "")
            )
            self._gate.require_not_revoked(completed_sign_in.person)
        except Problem as problem:
            return self._page("/", problem.detail, problem.status)
        except (Retryable, Misconfigured) as error:
            return self._no_provider("/", error)
        except SignInRefused as error:
            logger.warning("sign-in-refused", issuer=self._login.issuer, reason=str(error))
            return self._page("/", f"Not signed in: {error}.", error.status)
        person = completed_sign_in.person
        logger.info(
            "signed-in", person=person.name, roles=[principal.role.value for principal in person.principals]
        )
        response = RedirectResponse(completed_sign_in.next_page, 303)
        self._set_session(
            response,
            request,
            self._gate.sessions.begin(person),
            person.life_s,
            secure=self._base(request).startswith("https:"),
        )
        response.delete_cookie(_pending_cookie(request), path=PROVIDER_PATH, httponly=True, samesite="lax")
        return response

    async def provider_signs_out(self, request: Request) -> Response:
        """End the sessions of somebody whom the provider has signed out (OpenID Connect Back-Channel Logout 1.0)."""
        fields, no_store = await _form_fields(request, _LOGOUT_BYTES), {"cache-control": "no-store"}
        try:
            if self._login is None:
                raise SignInRefused("there is no provider with which to sign in")
            session_count = self._gate.sessions.end_at_provider(
                await self._login.ended_session(fields.get("logout_token", ""))
            )
        except SignInRefused as error:
            logger.warning("sign-out-refused", reason=str(error))
            refusal = {"error": "invalid_request", "error_description": str(error)}
            return JSONResponse(refusal, 400, no_store)
        except (Retryable, Misconfigured) as error:
            logger.warning("sign-in-provider-unavailable", error=str(error))
            raise retry_later("The provider's keys cannot be read now. Try again.") from None
        logger.info("signed-out-by-provider", sessions=session_count)
        return Response(None, 200, no_store)

    async def sign_in_with(self, request: Request) -> Response:
        """Begin a session with a token, or with the code of a link."""
        fields = await _form_fields(request)
        next_page = _local_path(fields.get("next", "/"))
        try:
            self._gate.require_read(fresh=False)
        except Problem as problem:
            return self._page(next_page, problem.detail, problem.status)
        if "origin" not in request.headers:
            return self._page(next_page, "The browser does not say from which page this comes.", 403)
        if code := fields.get("code", ""):
            principal = self._gate.sessions.redeem(code, now_us())
            reason = "The link was used before, or is older than an hour."
        else:
            principal = self._gate.of_token(fields.get("token", "").strip())
            reason = "The token is unknown, has expired or was revoked."
        if principal is None:
            return self._page(next_page, reason, 401)
        response = RedirectResponse(next_page, 303)
        self._set_session(
            response,
            request,
            self._gate.sessions.begin(principal),
            SESSION_S,
            secure=request.headers["origin"].startswith("https:"),
        )
        return response

    async def sign_out(self, request: Request) -> Response:
        """End the session."""
        name, path = cookie_name(request), PATH
        if session := request.cookies.get(name):
            path += "?signed-out" if self._gate.sessions.is_of_person(session) else ""
            self._gate.sessions.end(session)
        response = RedirectResponse(path, 303)
        response.delete_cookie(name, httponly=True, samesite="lax")
        return response

    def _page(
        self, next_page: str, reason: str = "", status: int = 200, *, sign_out_url: str | None = None
    ) -> Response:
        provider = None if self._login is None else urlsplit(self._login.issuer).netloc
        values = {
            "next": next_page,
            "why": reason,
            "provider": provider,
            "provider_path": self._provider_path(next_page),
            "sign_out_url": sign_out_url,
        }
        return self._pages.page("sign-in.html", "Sign in", values, {}, status)

    def _no_provider(self, next_page: str, error: Exception) -> Response:
        logger.warning("sign-in-provider-unavailable", error=str(error))
        return self._page(
            next_page,
            "The provider cannot sign anybody in now; the log of this service says why. Who has signed in stays so. "
            "Tokens and links work.",
            503,
        )

    @staticmethod
    def _provider_path(next_page: str) -> str:
        return f"{PROVIDER_PATH}?next={quote(next_page, safe='')}"

    def _base(self, request: Request) -> str:
        """Scheme and host of the console as the browser sees it."""
        return self._url or str(request.base_url).rstrip("/")

    def _set_session(
        self, response: Response, request: Request, session: str, life_s: float, *, secure: bool
    ) -> None:
        response.set_cookie(
            cookie_name(request),
            session,
            max_age=int(life_s),
            secure=secure,
            httponly=True,
            samesite="lax",
        )


def _pending_cookie(request: Request) -> str:
    return cookie_name(request).replace("session", "sign-in")


def _local_path(target: str) -> str:
    """A path of this server; others are replaced by `/`, since a link could lead to another site."""
    try:
        host = urlsplit(target).netloc
    except ValueError:
        return "/"
    is_local = target.startswith("/") and not target.startswith(("//", "/\\")) and not host
    return target if is_local and target.isprintable() else "/"


async def _form_fields(request: Request, most_bytes: int = _BODY_BYTES) -> dict[str, str]:
    """The fields of a form.

    Raises:
        Problem: 413, it is too large.
    """
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > most_bytes:
            raise Problem(413, f"A form may have {most_bytes} bytes.")
    return {name: values[-1] for name, values in parse_qs(body.decode("utf-8", "replace")).items()}
