"""Create the access control entries of a stream, and list those that exist."""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from aiokafka.errors import KafkaError, for_code
from aiokafka.protocol.admin import CreateAclsRequest_v1, DescribeAclsRequest
from aiokafka.protocol.api import Request

from hifi.kafka.clients import started_admin
from hifi.kafka.security.access import Acl, Operation, Resource
from hifi.runtime.errors import Misconfigured, Retryable

_ANSWER_S: Final = 20.0
_RESOURCES: Final[Mapping[Resource, int]] = {"topic": 2, "group": 3, "cluster": 4, "transactional-id": 5}
_OPERATIONS: Final[Mapping[Operation, int]] = {
    "Read": 3,
    "Write": 4,
    "Create": 5,
    "Delete": 6,
    "Describe": 8,
    "DescribeConfigs": 10,
}
_SECURITY_DISABLED: Final = 54
_ANY, _LITERAL, _PREFIXED, _ALLOW = 1, 3, 4, 3
_ANY_HOST: Final = "*"


class NoAuthorizer(Misconfigured):
    """Kafka does not check ACLs."""


class _CreateAcls(Request[CreateAclsRequest_v1]):  # type: ignore[misc] # aiokafka's own creates one entry a request
    API_KEY = CreateAclsRequest_v1.API_KEY

    def __init__(self, entries: Sequence[tuple[str, Acl]]) -> None:
        self._entries = entries

    def build(self, request_struct_class: type[CreateAclsRequest_v1]) -> CreateAclsRequest_v1:
        return request_struct_class(
            [
                (
                    _RESOURCES[acl.resource],
                    acl.name,
                    _PREFIXED if acl.prefixed else _LITERAL,
                    principal,
                    _ANY_HOST,
                    _OPERATIONS[acl.operation],
                    _ALLOW,
                )
                for principal, acl in self._entries
            ]
        )


async def create_acls(bootstrap: str, declared_acls: Mapping[str, Iterable[Acl]]) -> int:
    """Create the missing entries. Entries that exist and are not declared stay.

    Args:
        bootstrap: `HOST:PORT,…`; its security must be that of a user who may alter the cluster.
        declared_acls: principal, such as `User:hifi.egest`, to its entries.

    Returns:
        The number of entries created.

    Raises:
        Misconfigured: Kafka has no authorizer, or does not allow it.
        Retryable: Kafka does not answer.
    """
    try:
        async with asyncio.timeout(_ANSWER_S), started_admin(bootstrap, "hifi-acls") as admin:
            missing_entries = await _missing(admin, declared_acls)
            if missing_entries:
                answer = await admin._send_request(_CreateAcls(missing_entries))  # noqa: SLF001
                for code, message in answer.creation_responses:
                    _raise_for(code, message)
            while await _missing(admin, declared_acls):
                await asyncio.sleep(0.05)  # a broker learns of them a moment later
            return len(missing_entries)
    except (KafkaError, OSError, TimeoutError) as error:
        raise Retryable(f"Kafka at {bootstrap} did not create the ACLs: {error!r}") from error


async def missing_acls(
    bootstrap: str, declared_acls: Mapping[str, Iterable[Acl]]
) -> list[tuple[str, Acl]] | None:
    """The entries that `create_acls` would create, with their principals; None: Kafka has no authorizer.

    Raises:
        Misconfigured: Kafka does not allow it.
        Retryable: Kafka does not answer.
    """
    try:
        async with asyncio.timeout(_ANSWER_S), started_admin(bootstrap, "hifi-acls") as admin:
            return await _missing(admin, declared_acls)
    except NoAuthorizer:
        return None
    except (KafkaError, OSError, TimeoutError) as error:
        raise Retryable(f"Kafka at {bootstrap} did not list the ACLs: {error!r}") from error


async def _missing(admin: Any, declared_acls: Mapping[str, Iterable[Acl]]) -> list[tuple[str, Acl]]:
    return [
        (principal, acl)
        for principal, acls in declared_acls.items()
        for acl in sorted(set(acls) - await _existing(admin, principal))
    ]


async def _existing(admin: Any, principal: str) -> set[Acl]:
    """The entries of a principal that allow one of hifi's operations from any host."""
    # None matches every name and host.
    request = DescribeAclsRequest(_ANY, None, _ANY, principal, None, _ANY, _ALLOW)
    answer = await admin._send_request(request)  # noqa: SLF001
    _raise_for(answer.error_code, answer.error_message)
    resources = {code: name for name, code in _RESOURCES.items()}
    operations = {code: name for name, code in _OPERATIONS.items()}
    return {
        Acl(resources[kind], name, pattern == _PREFIXED, operations[operation])
        for kind, name, pattern, acls in answer.resources
        for _, host, operation, _ in acls
        if kind in resources and operation in operations and host == _ANY_HOST
    }


def _raise_for(code: int, message: str | None) -> None:
    if code == _SECURITY_DISABLED:
        raise NoAuthorizer(
            "Kafka has no authorizer, so ACLs have no effect: set authorizer.class.name of the brokers"
        )
    if code:
        error: type[KafkaError] = for_code(code)
        raise Misconfigured(
            f"Kafka refuses to change ACLs: {error.__name__} {message or ''}; use a user who may alter the cluster"
        )
