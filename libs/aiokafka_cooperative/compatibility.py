"""Check that the installed aiokafka still has the private parts that this package uses."""

from collections.abc import Mapping
from types import CodeType
from typing import Any, Final

import aiokafka
from aiokafka import AIOKafkaConsumer
from aiokafka.consumer.fetcher import Fetcher
from aiokafka.consumer.group_coordinator import CoordinatorGroupRebalance, GroupCoordinator
from aiokafka.consumer.subscription_state import (
    Assignment,
    Subscription,
    SubscriptionState,
    TopicPartitionState,
)

PrivateUse = Mapping[type, Mapping[str, str]]
"""By class and method: names, separated by spaces, that the method's code must use or take as parameters."""


class IncompatibleAiokafkaError(RuntimeError):
    """The installed aiokafka release differs from the one that a subclass of its parts was written for."""


USED_BY_COOPERATIVE: Final[PrivateUse] = {
    AIOKafkaConsumer: {"start": "GroupCoordinator _coordinator _fetcher wait_for_assignment"},
    GroupCoordinator: {
        "__init__": "assignors generation member_id _commit_lock _rebalance_timeout_ms _performed_join_prepare",
        "ensure_active_group": "subscription prev_assignment _on_join_prepare _do_rejoin_group",
        "_on_join_prepare": "previous_assignment _group_subscription",
        "_do_rejoin_group": "subscription CoordinatorGroupRebalance perform_group_join _on_join_complete",
        "_perform_assignment": "response members _group_subscription _metadata_snapshot",
        "_on_join_complete": "start_commit_offsets_refresh_task",
        "reset_generation": "generation member_id request_rejoin",
        "commit_offsets": "assignment offsets _commit_lock _do_commit_offsets CommitFailedError",
        "_do_commit_offsets": "assignment offsets generation member_id _send_req",
        "_do_heartbeat": "_send_req reset_generation",
        "_send_req": "request coordinator_id",
    },
    CoordinatorGroupRebalance: {
        "perform_group_join": "_assignors metadata name _send_req reset_generation",
        "_on_join_leader": "_perform_assignment",
    },
    Assignment: {"__init__": "_topic_partitions _tp_state", "requesting_committed": "_committed_futs"},
    Subscription: {"_assign": "_assignment _reassignment_in_progress"},
    SubscriptionState: {"assign_from_subscribed": "_notify_assignment_waiters"},
    TopicPartitionState: {"__init__": "_assignment _position _position_fut _committed_futs"},
    Fetcher: {"__init__": "_records _wait_consume_future"},
}
"""The methods of aiokafka that this package replaces, calls or relies on."""


def check_compatibility(private_use: PrivateUse = USED_BY_COOPERATIVE, user: str = __package__ or "") -> None:
    """Check the installed aiokafka.

    Args:
        private_use: the private parts in use.
        user: the package or module that uses them, for the message.

    Raises:
        IncompatibleAiokafkaError: it differs; the message names the class, method and missing name.
    """
    differences = [
        f"{owner.__name__}.{method} has no {name}"
        for owner, methods in private_use.items()
        for method, names in methods.items()
        for name in names.split()
        if name not in _names(getattr(owner, method, None))
    ]
    if differences:
        raise IncompatibleAiokafkaError(
            f"aiokafka {aiokafka.__version__} differs from the release that {user} was written for: "
            f"{'; '.join(differences)}. Install the locked release, or adapt {user} with the help of its tests"
        )


def _names(function: Any) -> tuple[str, ...]:
    code = getattr(function, "__code__", None)
    return code.co_names + code.co_varnames if isinstance(code, CodeType) else ()
