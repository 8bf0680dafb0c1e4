"""Requests to an OpenID Connect provider: discovery, authorization code to id token, keys, and claims about a person.

The keys are read anew for each id token, since people sign in seldom: a key that the provider has replaced or withdrawn
counts at once.
"""

import asyncio
import base64
import ssl
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import quote_plus, urlencode

import aiohttp
import orjson

from hifi.control.principals.oidc.id_token import ended_session, verified_claims
from hifi.control.principals.oidc.refusals import SignInRefused
from hifi.control.principals.oidc.settings import PREFIX, OidcSettings
from hifi.control.principals.person import ProviderSession
from hifi.runtime.clock import MICROSECONDS, monotonic_s, now_us
from hifi.runtime.egress import EgressKind, egress
from hifi.runtime.errors import Misconfigured, Retryable

_TIMEOUT: Final = aiohttp.ClientTimeout(total=10)
_MOST_BYTES: Final = 1024 * 1024
_METADATA_S: Final = 300.0
"""How long the discovery document is used."""
_BASIC: Final = "client_secret_basic"
_REQUIRED: Final = ("authorization_endpoint", "token_endpoint", "jwks_uri")
_OPTIONAL: Final = ("userinfo_endpoint", "end_session_endpoint")


class Provider:
    """The provider that the settings name.

    Args:
        settings: of sign-in.
    """

    def __init__(self, settings: OidcSettings) -> None:
        self._settings = settings
        self._egress = egress(None).with_host(EgressKind.OIDC, settings.issuer)
        self._metadata: dict[str, Any] = {}
        self._metadata_read_s = 0.0
        self._metadata_lock = asyncio.Lock()
        self._logout_lock = asyncio.Lock()

    async def metadata(self) -> Mapping[str, Any]:
        """The provider's discovery document (OpenID Connect Discovery 1.0).

        Raises:
            Retryable: the provider does not answer, or not as one.
        """
        async with self._metadata_lock:
            if not self._metadata or monotonic_s() - self._metadata_read_s > _METADATA_S:
                self._metadata = await self._discover()
                self._metadata_read_s = monotonic_s()
        return self._metadata

    async def _discover(self) -> dict[str, Any]:
        issuer = self._settings.issuer
        status, document = await self._request(
            "GET", f"{issuer.rstrip('/')}/.well-known/openid-configuration"
        )
        if status != 200 or document.get("issuer") != issuer:
            raise Retryable(
                f"the discovery document of {issuer} has the status {status} and the issuer {document.get('issuer')!r}"
            )
        schemes = ("https:",) if issuer.startswith("https:") else ("https:", "http:")
        for name in (*_REQUIRED, *(name for name in _OPTIONAL if document.get(name))):
            if not str(document.get(name)).startswith(schemes):
                raise Retryable(f"the discovery document of {issuer} has no {schemes[0]} URL as {name}")
        return document

    async def authorization_url(self, redirect_uri: str, state: str, nonce: str, challenge: str) -> str:
        """The URL to which a browser is sent to sign in.

        Args:
            redirect_uri: where the provider sends it back to.
            state: returned with the answer.
            nonce: that the id token will have.
            challenge: SHA-256 of the secret that redeems the code (RFC 7636).

        Raises:
            Retryable: the provider does not answer.
        """
        endpoint = (await self.metadata())["authorization_endpoint"]
        query = urlencode(
            {
                "response_type": "code",
                "client_id": self._settings.client_id,
                "redirect_uri": redirect_uri,
                "scope": self._settings.scopes,
                "state": state,
                "nonce": nonce,
                "code_challenge": challenge,
                "code_challenge_method": "S256",
            }
        )
        return f"{endpoint}{'&' if '?' in endpoint else '?'}{query}"

    async def sign_out_url(self, return_to: str) -> str | None:
        """The URL to which a browser is sent to sign out of the provider, too; None: there is no such page.

        Raises:
            Retryable: the provider does not answer.
        """
        endpoint = (await self.metadata()).get("end_session_endpoint")
        if not endpoint:
            return None
        query = urlencode({"client_id": self._settings.client_id, "post_logout_redirect_uri": return_to})
        return f"{endpoint}{'&' if '?' in endpoint else '?'}{query}"

    async def claims(self, code: str, redirect_uri: str, verifier: str, nonce: str) -> dict[str, Any]:
        """The provider's claims about the person who signed in; those that the id token lacks are requested.

        Args:
            code: from the provider's answer to the browser.
            redirect_uri: to which that was sent.
            verifier: the secret that redeems the code.
            nonce: of the request.

        Raises:
            SignInRefused: the provider refuses the code, or its id token is not valid.
            Misconfigured: the provider refuses the client, or a file cannot be read.
            Retryable: the provider does not answer.
        """
        metadata, settings = await self.metadata(), self._settings
        answer = await self._redeem(metadata, code, redirect_uri, verifier)
        claims = verified_claims(
            str(answer.get("id_token", "")),
            await self._keys(metadata),
            settings.issuer,
            settings.client_id,
            nonce,
            now_us() // MICROSECONDS,
        )
        names = {name.partition(".")[0] for name in (settings.roles_claim, settings.name_claim)}
        if metadata.get("userinfo_endpoint") and not names <= claims.keys():
            return await self._user_info(metadata, str(answer.get("access_token", "")), claims)
        return claims

    async def ended_session(self, token: str) -> ProviderSession:
        """The session that a logout token ends. One token at a time, since anybody may send some.

        Raises:
            SignInRefused: the token is not valid.
            Retryable: the provider does not answer.
        """
        async with self._logout_lock:
            keys = await self._keys(await self.metadata())
        settings = self._settings
        return ended_session(token, keys, settings.issuer, settings.client_id, now_us() // MICROSECONDS)

    async def _keys(self, metadata: Mapping[str, Any]) -> dict[str, Any]:
        status, keys = await self._request("GET", metadata["jwks_uri"])
        if status != 200 or not isinstance(keys.get("keys"), list):
            raise Retryable(f"{metadata['jwks_uri']} has no keys: status {status}")
        return keys

    async def _redeem(
        self, metadata: Mapping[str, Any], code: str, redirect_uri: str, verifier: str
    ) -> dict[str, Any]:
        secret, client_id = self._settings.read_client_secret(), self._settings.client_id
        form_fields = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": redirect_uri,
            "code_verifier": verifier,
        }
        headers = {}
        methods = metadata.get("token_endpoint_auth_methods_supported") or [_BASIC]
        if secret and _BASIC in methods:
            credentials = f"{quote_plus(client_id)}:{quote_plus(secret)}".encode()
            headers["Authorization"] = f"Basic {base64.b64encode(credentials).decode()}"
        else:
            form_fields |= {"client_id": client_id, **({"client_secret": secret} if secret else {})}
        status, answer = await self._request("POST", metadata["token_endpoint"], form_fields, headers)
        if status == 200:
            return answer
        reason = f"{answer.get('error', status)}: {answer.get('error_description', '')}"
        if answer.get("error") in ("invalid_client", "unauthorized_client", "unsupported_grant_type"):
            raise Misconfigured(f"the provider refuses the client of {PREFIX}CLIENT_ID: {reason}")
        raise SignInRefused(f"the provider refuses the code: {reason}")

    async def _user_info(
        self, metadata: Mapping[str, Any], access_token: str, claims: dict[str, Any]
    ) -> dict[str, Any]:
        status, user_info = await self._request(
            "GET", metadata["userinfo_endpoint"], headers={"Authorization": f"Bearer {access_token}"}
        )
        if status != 200 or user_info.get("sub") != claims["sub"]:
            raise SignInRefused(f"the provider says nothing more of the person: status {status}")
        return {**user_info, **claims}

    async def _request(
        self,
        method: str,
        url: str,
        form_fields: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> tuple[int, dict[str, Any]]:
        """Status and JSON object of an answer; an answer without one is empty.

        Raises:
            Retryable: there is no answer, or the server failed.
        """
        try:
            connector = self._egress.connector(EgressKind.OIDC, url)
            async with (
                aiohttp.ClientSession(timeout=_TIMEOUT, connector=connector) as session,
                session.request(
                    method,
                    url,
                    data=form_fields,
                    headers={"Accept": "application/json", **(headers or {})},
                    ssl=self._tls(),
                    allow_redirects=False,
                ) as response,
            ):
                body = await response.content.read(_MOST_BYTES + 1)
                while len(body) <= _MOST_BYTES and (chunk := await response.content.read(_MOST_BYTES)):
                    body += chunk
                status = response.status
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise Retryable(f"the OpenID Connect provider does not answer at {url}: {error!r}") from error
        if status >= 500 or status == 429 or len(body) > _MOST_BYTES:
            raise Retryable(f"the OpenID Connect provider answers {status} at {url} with {len(body):,} bytes")
        try:
            content = orjson.loads(body)
        except orjson.JSONDecodeError:
            content = None
        return status, content if isinstance(content, dict) else {}

    def _tls(self) -> ssl.SSLContext | bool:
        file = self._settings.ca_file
        if file is None:
            return True
        try:
            return ssl.create_default_context(cafile=file)
        except (OSError, ssl.SSLError) as error:
            raise Misconfigured(f"{PREFIX}CA_FILE={file} cannot be read: {error}") from None
