"""The end of a sign-in while the provider signs people out. Without a provider."""

import asyncio
import os
from typing import Any
from unittest.mock import AsyncMock, patch

import pytest

from hifi.control.principals.oidc.login import CompletedSignIn, OidcLogin
from hifi.control.principals.oidc.refusals import SignInRefused
from hifi.control.principals.oidc.settings import OidcSettings
from hifi.control.principals.person import ProviderSession
from hifi.runtime.settings import load

SETTINGS = {"ISSUER": "https://id.example", "CLIENT_ID": "hifi", "ROLES": "viewer=*", "SESSION_S": "600"}
CLAIMS = {"sub": "ann", "sid": "7", "exp": 2**40}


async def completed(ended_session: ProviderSession) -> CompletedSignIn:
    """Sign ann in; the provider ends a session while it gives her claims."""
    with patch.dict(os.environ, {f"HIFI_OIDC_{name}": value for name, value in SETTINGS.items()}):
        settings = load(OidcSettings)
    provider, is_asked, may_answer = AsyncMock(), asyncio.Event(), asyncio.Event()
    provider.metadata.return_value = {}
    provider.ended_session.return_value = ended_session

    async def claims(*_: Any) -> dict[str, Any]:
        is_asked.set()
        await may_answer.wait()
        return CLAIMS

    provider.claims = claims
    login = OidcLogin(settings, provider)
    await login.ended_session("before the sign-in")
    started_sign_in = await login.begin("http://127.0.0.1/sign-in/oidc/callback", "/")
    _, state, _, _ = provider.authorization_url.await_args.args
    ending = asyncio.create_task(login.end({"state": state, "code": "x"}, started_sign_in.browser))
    await is_asked.wait()
    await login.ended_session("meanwhile")
    may_answer.set()
    return await ending


@pytest.mark.parametrize("ended_session", [ProviderSession("ann"), ProviderSession("", "7")])
async def test_whom_the_provider_signs_out_while_the_sign_in_ends_is_not_signed_in(
    ended_session: ProviderSession,
) -> None:
    with pytest.raises(SignInRefused, match="signed the person out meanwhile"):
        await completed(ended_session)


@pytest.mark.parametrize(
    "ended_session", [ProviderSession("bob"), ProviderSession("", "8"), ProviderSession("ann", "8")]
)
async def test_the_end_of_another_session_ends_no_sign_in(ended_session: ProviderSession) -> None:
    assert (await completed(ended_session)).person.name == "oidc:ann"
