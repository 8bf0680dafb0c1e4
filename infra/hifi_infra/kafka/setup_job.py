"""`python -m hifi_infra.kafka.setup_job`: sets up a stream on an existing Kafka: users, topics, partition count, pipes.

A deployment runs it before its services, and again when pipes change; repeating it changes nothing. Exit status: 0 when
everything is published, 1 when Kafka did not answer in time, 2 when a pipe or a setting is wrong.
"""

import asyncio
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from aiokafka.errors import KafkaError
from pydantic import Field

from hifi.control.principals.principal import Role
from hifi.kafka.clients import started_admin
from hifi.kafka.settings import ControlSettings
from hifi.kafka.topics import ControlTopics, Topics
from hifi.kafka.visit import answering
from hifi.pipe import loader
from hifi.pipe.model import Pipe
from hifi.pipe.registry import read_registry
from hifi.runtime import log
from hifi.runtime.errors import Misconfigured, Retryable
from hifi_infra.kafka.credentials import ClusterCredentials
from hifi_infra.kafka.first_principal import ADMIN, create_with_token
from hifi_infra.kafka.secured_stream import secure_stream, stream_users
from hifi_infra.kafka.stream_setup import prepare, put_in_force, read_declared_names, split_decided
from hifi_infra.setup_command import SetupCommandSettings, run_setup

RETRY_S: Final = 0.5
logger = log.get(__name__)


class SetupSettings(SetupCommandSettings, ControlSettings):
    """Settings of `hifi_infra.kafka.setup_job`."""

    partitions: int | None = Field(
        None,
        ge=1,
        description="Partitions of each event topic, fixed at creation; default: as many as the stream has, else 4.",
    )
    brokers: int = Field(
        1, ge=1, description="Number of brokers to wait for first; it determines the replication factor."
    )
    pipes_folder: Path | None = Field(None, description="Folder of pipes to publish; default: none.")
    delete_missing: bool = Field(
        default=False, description="Delete published pipes that are not in the folder."
    )
    credentials_folder: Path | None = Field(
        None,
        description="Folder of `hifi_infra.kafka.make_credentials`, from which the Kafka users of the stream are made, "
        "with their ACLs. The job itself must then connect as a user who may do that. Default: users are left alone.",
    )
    control_token_file: Path | None = Field(
        None,
        description="File with the token of the first administrator of observe and manage; default: none is created.",
    )


async def set_up(settings: SetupSettings) -> None:
    """Set up the stream.

    Raises:
        Misconfigured: a pipe is wrong, a user's password is missing, or the stream has another partition count;
            nothing was changed.
        Retryable: Kafka did not answer in time.
    """
    pipes = _pipes(settings.pipes_folder)
    topics = settings.topics
    control = settings.control_topics if settings.control else None
    await wait_for_brokers(settings.kafka, settings.brokers, settings.wait_s)
    if settings.control_kafka and not settings.colour:
        await wait_for_brokers(settings.control_kafka, 1, settings.wait_s)
    if settings.credentials_folder is not None:
        await _users(settings.kafka, topics, control, ClusterCredentials(settings.credentials_folder))
    partitions = await prepare(
        settings.kafka,
        topics,
        settings.partitions,
        None if settings.colour else settings.principal_topics,
        control_kafka=settings.control_kafka,
        create=settings.create_topics,
        coloured=bool(settings.colour),
    )
    logger.info("stream-ready", stream=settings.stream, partitions=partitions)
    if control is not None and pipes:
        pipes = await _undecided(settings, topics, control, pipes)
    if settings.control_token_file is not None and not settings.colour:
        kafka, token_file = settings.control_bootstrap, settings.control_token_file
        topics_of_principals, variable = settings.principal_topics, "HIFI_CONTROL_TOKEN_FILE"
        if await create_with_token(kafka, topics_of_principals, ADMIN, Role.ADMIN, token_file, variable):
            logger.info("administrator-created", name=ADMIN)
    if settings.pipes_folder is not None:
        outcome = await put_in_force(
            settings.kafka, topics, pipes, delete_missing=settings.delete_missing and control is None
        )
        for pipe, change in outcome.items():
            logger.info("pipe-published", pipe=pipe, change=change)


def _pipes(folder: Path | None) -> list[Pipe]:
    if folder is None:
        return []
    loaded_pipes, problems = loader.load(folder)
    if problems:
        raise Misconfigured("no pipe was published:\n" + "\n".join(f"  {problem}" for problem in problems))
    return [pipe_file.pipe for pipe_file in loaded_pipes]


async def _undecided(
    settings: SetupSettings, topics: Topics, control: ControlTopics, pipes: Sequence[Pipe]
) -> list[Pipe]:
    """The pipes that the control plane has not decided about; what was deleted there does not come back.

    Raises:
        Misconfigured: the registry cannot be read.
        Retryable: the control plane's Kafka does not answer.
    """
    kafka = settings.control_bootstrap
    async with answering(f"Kafka at {kafka} does not answer"):
        declared_names = await read_declared_names(kafka, control)
    registry = await read_registry(settings.kafka, topics)
    undecided_pipes, left_names = split_decided(registry, declared_names, pipes)
    if left_names:
        logger.warning("pipes-left", pipes=left_names, detail="they are as the control plane has them")
    return undecided_pipes


async def _users(
    kafka: str, topics: Topics, control: ControlTopics | None, credentials: ClusterCredentials
) -> None:
    users = stream_users(topics, control).values()
    missing_files = [str(file) for file in map(credentials.password_file, users) if not file.exists()]
    if missing_files:
        raise Misconfigured(
            f"HIFI_CREDENTIALS_FOLDER: there is no password in {', '.join(missing_files)}; "
            f"run hifi_infra.kafka.make_credentials for the stream {topics.stream}"
        )
    await secure_stream(kafka, topics, credentials, control)
    logger.info("users-ready", users=len(users))


async def wait_for_brokers(kafka: str, brokers: int, wait_s: float) -> int:
    """Wait until a cluster has brokers; returns their number.

    Args:
        kafka: its bootstrap servers.
        brokers: least number of them.
        wait_s: longest wait, seconds.

    Raises:
        Retryable: there are fewer.
    """
    end_s = time.monotonic() + wait_s
    reported_state = ""
    while True:
        state = "Kafka does not answer"
        try:
            async with started_admin(kafka, "hifi-setup", request_timeout_ms=5000) as admin:
                count = len((await admin.describe_cluster())["brokers"])
            if count >= brokers:
                return count
            state = f"{count} of {brokers} brokers are up"
        except (KafkaError, OSError, TimeoutError) as error:
            logger.debug("kafka-unreachable", error=repr(error))
        if state != reported_state:
            logger.info("kafka-awaited", kafka=kafka, seen=state)
            reported_state = state
        if time.monotonic() > end_s:
            raise Retryable(f"waited {wait_s:.0f} s for Kafka at {kafka}: {state}; check that it runs")
        await asyncio.sleep(RETRY_S)


def main() -> None:
    """The command."""
    run_setup(SetupSettings, set_up)


if __name__ == "__main__":
    main()
