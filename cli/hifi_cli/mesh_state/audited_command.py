"""The audit of commands: who changed what, with before and after."""

import os
import pwd
import socket
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any

from hifi.control.principals.audit import AuditEntry
from hifi.control.principals.principal_store import audited
from hifi.kafka.topics import PrincipalTopics
from hifi.runtime.clock import now_us


def author() -> str:
    """The user of the process, for people, whatever its environment says."""
    try:
        user = pwd.getpwuid(os.getuid()).pw_name
    except KeyError:  # as in a container
        user = str(os.getuid())
    return f"{user}@{socket.gethostname()}"


def audited_command(
    kafka: str, topics: PrincipalTopics, action: str, before: Mapping[str, Any]
) -> AbstractAsyncContextManager[dict[str, Any]]:
    """Make changes in the block, which puts into the mapping what each subject is after them.

    Args:
        kafka: bootstrap servers of the audit.
        topics: of the audit.
        action: such as `park the destination`.
        before: subject, such as `pipe/flights`, to what it was; None: there was none.

    Raises:
        Retryable: the audit cannot be written; the block did not run.
    """
    actor, time_us = author(), now_us()
    return audited(
        kafka,
        topics,
        [AuditEntry(actor, action, subject, time_us, old_value) for subject, old_value in before.items()],
    )
