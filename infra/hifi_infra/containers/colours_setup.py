"""`python -m hifi_infra.containers.colours_setup`: users and topics on the control plane's Kafka of two colours.

Repeating it changes nothing. Exit status: 0 when everything is there, 1 when Kafka does not answer, 2 when a setting is
wrong.
"""

from pathlib import Path

from pydantic import Field

from hifi.control.principals.principal import Role
from hifi.kafka.admin import create_topics
from hifi.kafka.topics import ControlTopics
from hifi_infra.colours.colour_mesh import control_planes
from hifi_infra.colours.source_topics import SourceTopics
from hifi_infra.kafka.credentials import ClusterCredentials
from hifi_infra.kafka.first_principal import ADMIN, OBSERVE, create_with_token
from hifi_infra.kafka.kraft import replication
from hifi_infra.kafka.secured_stream import secure_stream
from hifi_infra.kafka.setup_job import wait_for_brokers
from hifi_infra.setup_command import SetupCommandSettings, run_setup


class ColoursSetupSettings(SetupCommandSettings):
    """Settings of `hifi_infra.containers.colours_setup`."""

    credentials_folder: Path | None = Field(
        None, description="Folder of `hifi_infra.kafka.make_credentials`; default: users are left alone."
    )
    control_token_file: Path | None = Field(
        None, description="File with the token of the first administrator; default: none is created."
    )
    observe_token_file: Path | None = Field(
        None, description="File with the token with which the observe of each colour reads that of the other."
    )


async def set_up(settings: ColoursSetupSettings) -> None:
    """Create what is missing.

    Raises:
        Misconfigured: a token cannot be read, or is short; or a topic is missing and must not be created.
        Retryable: Kafka does not answer.
    """
    topics, stream, create = settings.topics, settings.stream, settings.create_topics
    copies, _ = replication(await wait_for_brokers(settings.kafka, 1, settings.wait_s))
    for control in control_planes(stream):
        if settings.credentials_folder is not None:
            credentials = ClusterCredentials(settings.credentials_folder)
            await secure_stream(settings.kafka, topics, credentials, control)
        await create_topics(settings.kafka, control, partitions=1, replication=copies, create=create)
    await create_topics(settings.kafka, SourceTopics(topics), partitions=1, replication=copies, create=create)
    control_topics = ControlTopics(f"{stream}-control")
    for name, role, file, variable in (
        (ADMIN, Role.ADMIN, settings.control_token_file, "HIFI_CONTROL_TOKEN_FILE"),
        (OBSERVE, Role.VIEWER, settings.observe_token_file, "HIFI_OBSERVE_TOKEN_FILE"),
    ):
        if file is not None:
            await create_with_token(settings.kafka, control_topics, name, role, file, variable)


def main() -> None:
    """The command."""
    run_setup(ColoursSetupSettings, set_up)


if __name__ == "__main__":
    main()
