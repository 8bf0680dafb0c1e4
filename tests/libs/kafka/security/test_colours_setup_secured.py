"""What two colours share is created by the publisher, on a Kafka where the service colours may not do that."""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from tests.support.kafka.secured_kafka import SecuredKafka

from hifi.control.principals.principal import token_sha256
from hifi.control.principals.principal_store import read_principals
from hifi.delivery.colours import NAMES
from hifi.kafka.acl_admin import create_acls
from hifi.kafka.security import use
from hifi.kafka.security.access import PUBLISHER, access, user
from hifi.kafka.topics import ControlTopics, Topics
from hifi.runtime.errors import Misconfigured
from hifi_infra.containers.colours_setup import ColoursSetupSettings, set_up
from hifi_infra.kafka.credentials import ADMIN
from hifi_infra.kafka.secured_stream import secure_stream

TOPICS: Final = Topics("coloured")
CONTROL: Final = ControlTopics("coloured-control")
TOKEN: Final = "hifi_" + "t" * 43


@pytest.fixture
def as_admin_at_the_end(secured: SecuredKafka) -> Iterator[None]:
    """Makes this process the administrator again."""
    yield
    use(secured.bootstrap, secured.credentials.security(ADMIN))


@pytest.mark.more  # faster: test_setup_job_secured.py
@pytest.mark.usefixtures("as_admin_at_the_end")
async def test_the_publisher_creates_topics_and_the_administrator_once(
    secured: SecuredKafka, tmp_path: Path
) -> None:
    token_file = tmp_path / "token"
    token_file.write_text(TOKEN)
    await secure_stream(secured.bootstrap, TOPICS, secured.credentials)
    for name in ("control", *NAMES):
        publisher = access(TOPICS, ControlTopics(f"{TOPICS.stream}-{name}"))[PUBLISHER]
        await create_acls(secured.bootstrap, {f"User:{user(TOPICS, PUBLISHER)}": publisher.acls()})
    use(secured.bootstrap, secured.credentials.security(user(TOPICS, PUBLISHER)))
    values = {"kafka": secured.bootstrap, "stream": TOPICS.stream, "control_token_file": token_file}
    with pytest.raises(Misconfigured, match=r"coloured-control\.actions, .* missing .*--colours"):
        await set_up(ColoursSetupSettings.model_validate({**values, "create_topics": False}))
    for _ in range(2):
        await set_up(ColoursSetupSettings.model_validate(values))
    principals = (await read_principals(secured.bootstrap, CONTROL)).by_name
    assert {name: principal.token_sha256 for name, principal in principals.items()} == {
        "admin": token_sha256(TOKEN)
    }
