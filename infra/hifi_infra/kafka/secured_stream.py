"""Users and ACLs of a stream on a mesh's own secured Kafka."""

from collections.abc import Mapping

from hifi.kafka.acl_admin import create_acls
from hifi.kafka.security.access import user, user_access
from hifi.kafka.topics import ControlTopics, Topics
from hifi_infra.kafka.credentials import ClusterCredentials
from hifi_infra.kafka.scram_users import set_passwords


def stream_users(topics: Topics, control: ControlTopics | None = None) -> Mapping[str, str]:
    """Service, `publisher` or `operator` to its Kafka user."""
    return {role: user(topics, role) for role in user_access(topics, control)}


async def secure_stream(
    bootstrap: str, topics: Topics, credentials: ClusterCredentials, control: ControlTopics | None = None
) -> None:
    """Create the users of a stream with their passwords and ACLs; repeating it changes nothing.

    Args:
        bootstrap: `HOST:PORT,…` of the cluster.
        topics: the stream's.
        credentials: the cluster's; missing passwords are made.
        control: topics of the control plane; None: there is none.

    Raises:
        Retryable: Kafka did not answer.
    """
    users = stream_users(topics, control)
    await set_passwords(bootstrap, {name: credentials.password(name) for name in users.values()})
    access_by_role = user_access(topics, control)
    await create_acls(
        bootstrap, {f"User:{name}": access_by_role[role].acls() for role, name in users.items()}
    )
