"""Principals with which tests ask observe: those of a stream without a mesh, and the one that a mesh made."""

from hifi.control.principals.principal import Principal, Role, token_sha256
from hifi.kafka.admin import create_topics
from hifi.kafka.producer import Producer
from hifi.kafka.topics import PrincipalTopics, principal_topics
from hifi.runtime.clock import now_us
from hifi_infra.mesh.plan import Plan


def principal(name: str, role: Role, *pipes: str, expires_us: int | None = None) -> Principal:
    """A principal whose token is `token-of-NAME`."""
    return Principal(name, role, pipes, token_sha256(f"token-of-{name}"), expires_us, "test", now_us())


PRINCIPALS = (*(principal(role.value, role) for role in Role), principal("other", Role.OPERATOR, "other"))
"""One of each role, named as it, and an operator of a pipe that no test has."""


async def create_principals(kafka: str, stream: str | PrincipalTopics) -> PrincipalTopics:
    """Create the topics of principals and audit, and `PRINCIPALS`."""
    topics = principal_topics(stream) if isinstance(stream, str) else stream
    await create_topics(kafka, topics, partitions=1, replication=1)
    await write(kafka, topics, *PRINCIPALS)
    return topics


async def write(kafka: str, topics: PrincipalTopics, *principals: Principal) -> None:
    """Write principals to their topic."""
    producer = Producer(kafka, "test")
    await producer.start()
    try:
        await producer.send_and_wait(topics.principals, 0, [principal.record() for principal in principals])
    finally:
        await producer.stop()


def as_principal(name: str) -> dict[str, str]:
    """Headers with the token of a principal that a test made."""
    return {"authorization": f"Bearer token-of-{name}"}


def signed(plan: Plan) -> dict[str, str]:
    """Headers with the token in a mesh's data folder."""
    return {"authorization": f"Bearer {plan.token.read_text().strip()}"}


VIEWER = as_principal("viewer")
OPERATOR = as_principal("operator")
