"""Set the passwords of Kafka users (SCRAM, KIP-554). aiokafka has no request for it."""

import asyncio
import hashlib
import secrets
from collections.abc import Mapping
from typing import Final

from aiokafka.errors import KafkaError, for_code
from aiokafka.protocol.api import Request, RequestStruct, Response
from aiokafka.protocol.types import (
    CompactArray,
    CompactBytes,
    CompactString,
    Int8,
    Int16,
    Int32,
    Schema,
    TaggedFields,
)

from hifi.kafka.clients import started_admin
from hifi.runtime.errors import Retryable

SCRAM_SHA_512: Final = 2
ITERATIONS: Final = 4096
ANSWER_S: Final = 20.0


class AlterUserScramCredentialsResponse(Response):  # type: ignore[misc]
    """Version 0 of the response."""

    API_KEY = 51
    API_VERSION = 0
    SCHEMA = Schema(
        ("throttle_time_ms", Int32),
        (
            "results",
            CompactArray(
                ("user", CompactString("utf-8")),
                ("error_code", Int16),
                ("error_message", CompactString("utf-8")),
                ("tags", TaggedFields),
            ),
        ),
        ("tags", TaggedFields),
    )


class AlterUserScramCredentialsStruct(RequestStruct):  # type: ignore[misc]
    """Version 0 of the request as it is sent."""

    API_KEY = 51
    API_VERSION = 0
    FLEXIBLE_VERSION = True
    RESPONSE_TYPE = AlterUserScramCredentialsResponse
    SCHEMA = Schema(
        (
            "deletions",
            CompactArray(("name", CompactString("utf-8")), ("mechanism", Int8), ("tags", TaggedFields)),
        ),
        (
            "upsertions",
            CompactArray(
                ("name", CompactString("utf-8")),
                ("mechanism", Int8),
                ("iterations", Int32),
                ("salt", CompactBytes),
                ("salted_password", CompactBytes),
                ("tags", TaggedFields),
            ),
        ),
        ("tags", TaggedFields),
    )


class AlterUserScramCredentials(Request[AlterUserScramCredentialsStruct]):  # type: ignore[misc]
    """Sets passwords; Kafka receives only their salted hashes."""

    API_KEY = 51

    def __init__(self, passwords: Mapping[str, str]) -> None:
        self._passwords = passwords

    def build(
        self, request_struct_class: type[AlterUserScramCredentialsStruct]
    ) -> AlterUserScramCredentialsStruct:
        """The request in the version that the broker speaks."""
        upsertions: list[tuple[object, ...]] = []
        for user, password in self._passwords.items():
            salt, hashed_password = salted_password(password)
            upsertions.append((user, SCRAM_SHA_512, ITERATIONS, salt, hashed_password, {}))
        return request_struct_class([], upsertions, {})


def salted_password(password: str) -> tuple[bytes, bytes]:
    """A random salt, and the password as SCRAM-SHA-512 derives it (RFC 5802: Hi)."""
    salt = secrets.token_bytes(16)
    return salt, hashlib.pbkdf2_hmac("sha512", password.encode(), salt, ITERATIONS)


async def set_passwords(bootstrap: str, passwords: Mapping[str, str]) -> None:
    """Create these users, or replace their passwords. Connections that exist stay authenticated.

    Args:
        bootstrap: `HOST:PORT,…`; its security must be that of a user who may alter the cluster.
        passwords: user to password.

    Raises:
        Retryable: Kafka did not answer, or refused.
    """
    try:
        async with asyncio.timeout(ANSWER_S), started_admin(bootstrap, "hifi-scram-users") as admin:
            answer = await admin._send_request(AlterUserScramCredentials(passwords))  # noqa: SLF001
            for user, code, message, _ in answer.results:
                if code:
                    raise for_code(code)(f"{user}: {message}")
    except (KafkaError, OSError, TimeoutError) as error:
        raise Retryable(f"Kafka at {bootstrap} did not set the passwords of its users: {error!r}") from error
