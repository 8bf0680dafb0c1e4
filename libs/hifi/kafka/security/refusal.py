"""Makes aiokafka say why Kafka refuses a connection.

aiokafka tries each bootstrap server and raises only "Unable to bootstrap"; the cause, such as a wrong password or an
expired certificate, is in its log. The patch connects once more after such a failure and puts the cause into the error.
"""

import asyncio
import functools
import ssl
from collections.abc import Awaitable, Callable
from typing import Any, Final

from aiokafka.client import AIOKafkaClient
from aiokafka.conn import OAuthAuthenticator, create_conn
from aiokafka.errors import (
    AuthenticationFailedError,
    KafkaConnectionError,
    KafkaError,
    SaslAuthenticationFailed,
    UnsupportedSaslMechanismError,
)

from hifi.kafka.security.judged_brokers import open_stream

_CONNECT_S: Final = 5.0
_ALERT_S: Final = 1.0
"""With TLS 1.3 a broker refuses a client's certificate only after the handshake; its alert is awaited for this long."""


class KafkaRefusedError(KafkaConnectionError):  # type: ignore[misc]
    """Kafka, or this client, refuses the other's credentials. A later attempt may succeed, once they are replaced."""


def apply() -> None:
    """Patch all aiokafka clients of this process; calling it again does nothing."""
    if not hasattr(AIOKafkaClient.bootstrap, "__wrapped__"):
        AIOKafkaClient.bootstrap = _explain_failure(AIOKafkaClient.bootstrap)
        OAuthAuthenticator.step = _notice_refused_token(OAuthAuthenticator.step)


def _explain_failure(bootstrap: Callable[[Any], Awaitable[None]]) -> Callable[[Any], Awaitable[None]]:
    @functools.wraps(bootstrap)
    async def patched(self: Any) -> None:
        try:
            await bootstrap(self)
        except KafkaConnectionError as error:
            if self._security_protocol == "PLAINTEXT":
                raise
            for host, port, _ in self.hosts:
                if cause := await _cause(self, host, port):
                    raise KafkaRefusedError(cause) from error
            raise

    return patched


def _notice_refused_token(step: Callable[[Any, Any], Awaitable[Any]]) -> Callable[[Any, Any], Awaitable[Any]]:
    """A broker refuses a token with a challenge that names the error (RFC 7628), which aiokafka takes for success."""

    @functools.wraps(step)
    async def patched(self: Any, payload: bytes | None) -> Any:
        if self._token_sent and payload:
            raise SaslAuthenticationFailed(payload.decode("utf-8", "replace"))
        return await step(self, payload)

    return patched


async def _cause(client: Any, host: str, port: int) -> str | None:
    """Why this broker and this client do not accept each other; None if it is not known."""
    context = client._ssl_context  # noqa: SLF001
    if context is not None and (cause := await _tls_cause(client, context, host, port)):
        return f"TLS with Kafka at {host}:{port} failed: {cause}"
    if client._security_protocol in {"SASL_SSL", "SASL_PLAINTEXT"}:  # noqa: SLF001
        return await _sasl_cause(client, host, port)
    return None


async def _sasl_cause(client: Any, host: str, port: int) -> str | None:
    address, cause = f"{host}:{port}", None
    mechanism, user = client._sasl_mechanism, client._sasl_plain_username  # noqa: SLF001
    try:
        connection = await create_conn(
            host,
            port,
            client_id=client._client_id,  # noqa: SLF001
            request_timeout_ms=client._request_timeout_ms,  # noqa: SLF001
            ssl_context=client._ssl_context,  # noqa: SLF001
            security_protocol=client._security_protocol,  # noqa: SLF001
            sasl_mechanism=mechanism,
            sasl_plain_username=user,
            sasl_plain_password=client._sasl_plain_password,  # noqa: SLF001
            sasl_oauth_token_provider=client._sasl_oauth_token_provider,  # noqa: SLF001
        )
    except (SaslAuthenticationFailed, AuthenticationFailedError) as error:
        identity = f"the user {user}" if user else "the access token"
        cause = (
            f"Kafka at {address} refuses {identity} ({mechanism}): {_text(error)}; check HIFI_KAFKA_SECURITY_USER and "
            "HIFI_KAFKA_SECURITY_PASSWORD_FILE"
        )
    except UnsupportedSaslMechanismError:
        cause = (
            f"Kafka at {address} does not enable HIFI_KAFKA_SECURITY_MECHANISM={mechanism}; "
            "name one that it enables"
        )
    except KafkaConnectionError as error:
        cause = _text(error) if "token endpoint" in _text(error) else None
    except (KafkaError, OSError, TimeoutError):
        cause = None
    else:
        connection.close()
    return cause


async def _tls_cause(client: Any, context: ssl.SSLContext, host: str, port: int) -> str | None:
    try:
        async with asyncio.timeout(_CONNECT_S):
            reader, writer = await open_stream(client, host, port, context)
    except ssl.SSLCertVerificationError as error:
        return (
            f"its certificate is refused: {error.verify_message}; check HIFI_KAFKA_SECURITY_CA_FILE, and the "
            "certificate's dates and host names"
        )
    except ssl.SSLError as error:
        return f"{error.reason or error}; check that this listener speaks TLS, and the client's certificate"
    except (OSError, TimeoutError):
        return None
    try:
        async with asyncio.timeout(_ALERT_S):
            await reader.read(1)
    except ssl.SSLError as error:
        return (
            f"the broker refuses the client's certificate: {error.reason or error}; check "
            "HIFI_KAFKA_SECURITY_CERTIFICATE_FILE and HIFI_KAFKA_SECURITY_KEY_FILE"
        )
    except (OSError, TimeoutError):
        return None
    finally:
        writer.close()
    return None


def _text(error: BaseException) -> str:
    return str(error.args[0]) if error.args else repr(error)
