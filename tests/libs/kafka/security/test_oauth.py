"""Access tokens for OAUTHBEARER, from a token endpoint. test_refusal.py uses them on a broker."""

import base64
from pathlib import Path

import pytest
from aiokafka.errors import KafkaConnectionError
from tests.support.token_endpoint import TokenEndpoint, running_endpoint

from hifi.kafka.security import KafkaSecurity, client_options
from hifi.kafka.security.oauth import ClientCredentials


async def test_a_token_is_fetched_once_and_kept_while_it_is_valid() -> None:
    async with running_endpoint(TokenEndpoint()) as endpoint:
        tokens = ClientCredentials(endpoint.url, "me", lambda: "p:w", "kafka")
        assert [await tokens.token(), await tokens.token()] == ["token-1", "token-1"]
    (request,) = endpoint.requests
    assert "grant_type=client_credentials&scope=kafka" in request
    credentials = base64.b64encode(b"me:p%3Aw").decode()
    assert f"authorization: basic {credentials}".lower() in request.lower()


async def test_a_token_is_replaced_before_it_expires() -> None:
    async with running_endpoint(TokenEndpoint(life_s=0)) as endpoint:
        tokens = ClientCredentials(endpoint.url, "me", lambda: "pw")
        assert [await tokens.token(), await tokens.token()] == ["token-1", "token-2"]


async def test_a_token_is_fetched_with_the_secret_that_the_file_has_then(tmp_path: Path) -> None:
    file = tmp_path / "secret"
    file.write_text("before\n")
    async with running_endpoint(TokenEndpoint(life_s=0)) as endpoint:
        security = KafkaSecurity(
            protocol="SASL_PLAINTEXT",
            mechanism="OAUTHBEARER",
            user="me",
            password_file=file,
            token_url=endpoint.url,
        )
        tokens = client_options("nowhere:1", security)["sasl_oauth_token_provider"]
        await tokens.token()
        file.write_text("after\n")
        await tokens.token()
    for secret, request in zip(("before", "after"), endpoint.requests, strict=True):
        assert base64.b64encode(f"me:{secret}".encode()).decode() in request


async def test_an_endpoint_that_refuses_is_named_and_the_secret_is_not() -> None:
    async with running_endpoint(TokenEndpoint(status="401 Unauthorized")) as endpoint:
        with pytest.raises(KafkaConnectionError, match=f"{endpoint.url} gave no access token") as raised:
            await ClientCredentials(endpoint.url, "me", lambda: "canary").token()
    encoded_secret = base64.b64encode(b"me:canary").decode()
    assert "canary" not in repr(raised.value)
    assert encoded_secret not in repr(raised.value)
