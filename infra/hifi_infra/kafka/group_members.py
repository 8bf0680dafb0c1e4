"""Removes members of consumer groups whose process has ended.

Kafka notices a member that was killed only after the session time-out (10 s by default), and gives nobody its
partitions before. A supervisor that saw the process end can say so at once: LeaveGroup names a member by its id and
may come from any connection.
"""

import asyncio
from collections.abc import Sequence
from typing import Any, Final

from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import KafkaError, UnknownMemberIdError, for_code
from aiokafka.protocol.group import LeaveGroupRequest

from hifi.kafka.clients import started_admin
from hifi.runtime.errors import Retryable

ANSWER_S: Final = 3.0
"""Bound on the whole removal: without it the session time-out does the same, later."""


async def remove_group_members(bootstrap: str, stream: str, client_id: str) -> int:
    """Remove every member with this client id from all consumer groups of a stream.

    Call it only when no process that uses this client id runs: a member that is removed while it lives would go on
    for up to its lease beside the new owner of its partitions.

    Args:
        bootstrap: `HOST:PORT,…`.
        stream: name of the stream; its groups are called `<stream>.<service>`.
        client_id: of the members, which is the name of their instance.

    Returns:
        How many members were removed.

    Raises:
        Retryable: Kafka did not answer, or refused.
    """
    try:
        async with (
            asyncio.timeout(ANSWER_S),
            started_admin(bootstrap, "hifi-group-members", request_timeout_ms=int(ANSWER_S * 1000)) as admin,
        ):
            groups = [name for name, _ in await admin.list_consumer_groups() if name.startswith(f"{stream}.")]
            removed_counts = [await _remove(admin, group, client_id) for group in groups]
            return sum(removed_counts)
    except (KafkaError, OSError, TimeoutError) as error:
        raise Retryable(f"Kafka at {bootstrap} did not remove members of {client_id}: {error!r}") from error


async def _remove(admin: AIOKafkaAdminClient, group: str, client_id: str) -> int:
    coordinator = await admin.find_coordinator(group)
    (answer,) = await admin.describe_consumer_groups([group], group_coordinator_id=coordinator)
    removed_count = 0
    for member_id in member_ids(answer.to_object()["groups"], client_id):
        leave_answer = await admin._send_request(LeaveGroupRequest(group, member_id), coordinator)  # noqa: SLF001
        error_code = leave_answer.error_code
        if error_code and error_code != UnknownMemberIdError.errno:  # its session had just expired
            raise for_code(error_code)(f"{member_id} of {group}")
        removed_count += not error_code
    return removed_count


def member_ids(groups: Sequence[dict[str, Any]], client_id: str) -> list[str]:
    """Ids of the members with this client id, of groups as a DescribeGroups response lists them. Pure."""
    return [
        str(member["member_id"])
        for group in groups
        for member in group["members"]
        if member["client_id"] == client_id
    ]
