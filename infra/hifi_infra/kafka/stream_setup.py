"""Sets up a stream: its topics, its partition count and its pipes."""

import asyncio
import os
from collections.abc import Collection, Mapping, Sequence
from typing import Final

from aiokafka.errors import KafkaError, KafkaTimeoutError

from hifi.control.declaration import Declarations
from hifi.delivery.destination_changes import require_possible_changes
from hifi.delivery.installed_kinds import completed
from hifi.delivery.several_logs import require_fit_for_colours
from hifi.kafka.admin import create_topics, partition_counts
from hifi.kafka.clients import admin_client
from hifi.kafka.topics import ControlTopics, PrincipalTopics, Topics
from hifi.kafka.visit import read_topics
from hifi.pipe import rollout
from hifi.pipe.limit_check import require_allowed, require_mask_keys
from hifi.pipe.model import Pipe
from hifi.pipe.registry import RegistrySnapshot, publish, read_registry, stream_record
from hifi.pipe.revision import PipeRevision
from hifi.pipe.shared_keys import require_keys_of_their_own
from hifi.record.record import Record
from hifi.runtime.errors import Retryable, Unprepared
from hifi_infra.kafka.kraft import replication

DEFAULT_PARTITIONS: Final = 4
ANSWER_S: Final = 30.0


async def prepare(
    bootstrap: str,
    topics: Topics,
    partitions: int | None,
    control: PrincipalTopics | None = None,
    *,
    control_kafka: str = "",
    create: bool = True,
    coloured: bool = False,
) -> int:
    """Create missing topics and the stream's record; repeating it changes nothing.

    Args:
        bootstrap: `HOST:PORT,…`.
        topics: the stream's.
        partitions: of each event topic; None: as many as the stream has, else four.
        control: topics of the control plane, or of principals and audit only; None: another job makes them.
        control_kafka: bootstrap servers of the Kafka where they are; empty: the stream's.
        create: False: only check that the topics exist as they must be.
        coloured: the stream is one of two colours; its record says so from then on.

    Returns:
        The stream's partition count.

    Raises:
        Unprepared: Kafka refuses, or lacks topics.
        Misconfigured: the stream has another count or records of a later format, or it is coloured and has a pipe that
            would lose events.
        Retryable: Kafka does not answer.
    """
    try:
        async with asyncio.timeout(ANSWER_S):
            copies, _ = replication(await _brokers(bootstrap))
            existing_counts = await partition_counts(bootstrap, [topics.raw, topics.pipes])
            # refuses the stream of a later release before anything changes
            if topics.pipes in existing_counts:
                await read_registry(bootstrap, topics)
            count = partitions or existing_counts.get(topics.raw, DEFAULT_PARTITIONS)
            await create_topics(bootstrap, topics, partitions=count, replication=copies, create=create)
            if control is not None:
                if control_kafka:
                    copies, _ = replication(await _brokers(control_kafka))
                await create_topics(
                    control_kafka or bootstrap, control, partitions=1, replication=copies, create=create
                )
            registry = await read_registry(bootstrap, topics)
            if coloured:
                require_fit_for_colours(in_force(registry))
            if registry.partitions is None or (coloured and not registry.coloured):
                await publish(bootstrap, topics, [stream_record(count, coloured=coloured)])
            return count
    except (TimeoutError, KafkaError, OSError, Retryable) as error:
        reason = f": {error}" if str(error) else ""
        is_refused = (
            isinstance(error, KafkaError) and not error.retriable and not isinstance(error, KafkaTimeoutError)
        )
        raise (Unprepared if is_refused else Retryable)(
            f"Kafka at {bootstrap} did not answer as expected within {ANSWER_S:.0f} s{reason}; "
            "check that it runs and that this is its address"
        ) from error


async def put_in_force(
    bootstrap: str,
    topics: Topics,
    pipes: Sequence[Pipe],
    *,
    delete_missing: bool = False,
    share: int | None = None,
    variables: Mapping[str, str] = os.environ,
) -> Mapping[str, str]:
    """Publish the pipes that differ from the published ones, also from what a rollout introduces.

    Args:
        bootstrap: `HOST:PORT,…`.
        topics: of the stream.
        pipes: to publish.
        delete_missing: delete published pipes that are not among them.
        share: of the keys, in 1/10,000, which get a changed declaration first, as a rollout; None: everything at once.
        variables: environment of the services, which has the keys of masks; default: of this process.

    Returns:
        Pipe to its change: `new`, `changed`, `rolling out`, `unchanged` or `deleted`.

    Raises:
        Misconfigured: a pipe names a secret or a file that it may not name or has another's write key, the key of a new
            mask cannot be read, the settings of a destination are not valid or cannot follow those in force, one would
            lose events of a colour, a rollout of another declaration runs, what is published of it cannot be read, or
            Kafka does not answer.
    """
    require_allowed(pipes)
    pipes = [completed(pipe) for pipe in pipes]
    registry = await read_registry(bootstrap, topics)
    rollout.require_readable(registry, sorted(pipe.pipe for pipe in pipes))
    if registry.coloured:
        require_fit_for_colours(pipes)
    require_keys_of_their_own(pipes, [] if delete_missing else in_force(registry), variables)
    current_pipes = {name: revision.pipe for name, revision in registry.pipes.items()}
    require_mask_keys(pipes, current_pipes, variables)
    for pipe in pipes:
        require_possible_changes(pipe, current_pipes)
    outcome = compare(registry, pipes, delete_missing=delete_missing)
    pipes_by_name = {pipe.pipe: pipe for pipe in pipes}
    if share is not None:
        outcome = {
            name: _with_share(registry, name, pipes_by_name, change) for name, change in outcome.items()
        }
    records = [
        record
        for name, change in outcome.items()
        for record in _records(registry, name, pipes_by_name.get(name), change, share)
    ]
    if records:
        await publish(bootstrap, topics, records)
    return outcome


async def read_declared_names(bootstrap: str, control: ControlTopics) -> Collection[str]:
    """Names of the pipes that were ever declared to a control plane, also those that are to be deleted.

    A colour's topics of the control plane may be missing, since another job makes them: nothing was declared then.

    Raises:
        aiokafka.errors.KafkaError: Kafka refused.
    """
    if not await partition_counts(bootstrap, [control.declared]):
        return ()
    declarations = Declarations()
    await read_topics(bootstrap, "hifi-setup", {control.declared: declarations.take})
    return declarations.newest.keys() | declarations.unreadable.keys()


def split_decided(
    registry: RegistrySnapshot, declared_names: Collection[str], pipes: Sequence[Pipe]
) -> tuple[list[Pipe], list[str]]:
    """The pipes that a control plane has not decided about, and the names of the others that are not in force as given.

    A pipe that is held, since a later release wrote it, is among the others.

    Args:
        registry: of the stream.
        declared_names: of pipes that were declared.
        pipes: of a folder.
    """
    decided_names = registry.pipes.keys() | registry.held.keys() | set(declared_names)
    undecided_pipes = [pipe for pipe in pipes if pipe.pipe not in decided_names]
    decided_pipes = [completed(pipe) for pipe in pipes if pipe.pipe in decided_names]
    changes = compare(registry, decided_pipes, delete_missing=False)
    return undecided_pipes, [name for name, change in changes.items() if change != "unchanged"]


def in_force(registry: RegistrySnapshot) -> list[Pipe]:
    """The pipes in force, and those of rollouts that run."""
    versions = registry.pipes.values()
    return [revision.pipe for revision in versions] + [
        revision.rollout.next.pipe for revision in versions if revision.rollout
    ]


def _with_share(registry: RegistrySnapshot, name: str, pipes: Mapping[str, Pipe], change: str) -> str:
    """The change where a declaration gets only a share: a new pipe has no revision to share with."""
    current_revision = registry.pipes.get(name)
    is_rolling = (
        current_revision is not None
        and current_revision.rollout is not None
        and current_revision.rollout.next.pipe == pipes.get(name)
    )
    return "rolling out" if change == "changed" or is_rolling else change


def _records(
    registry: RegistrySnapshot, name: str, pipe: Pipe | None, change: str, share: int | None
) -> list[Record]:
    if change == "unchanged":
        return []
    if pipe is None:
        return rollout.delete(registry, name)
    if change != "rolling out" or share is None:
        return rollout.put_at_once(registry, pipe)
    running_rollout = registry.pipes[name].rollout
    if running_rollout is not None and running_rollout.next.pipe == pipe:
        return rollout.change_share(registry, name, share)
    return rollout.begin(registry, pipe, share)


def compare(registry: RegistrySnapshot, pipes: Sequence[Pipe], *, delete_missing: bool) -> dict[str, str]:
    """Pipe to its change, ordered by name: `new`, `changed`, `unchanged` or `deleted`."""
    revisions: Mapping[str, PipeRevision] = registry.pipes

    def change(pipe: Pipe) -> str:
        if pipe.pipe not in revisions:
            return "new"
        current_revision = revisions[pipe.pipe]
        current_pipes = [
            current_revision.pipe,
            *([current_revision.rollout.next.pipe] if current_revision.rollout else []),
        ]
        return "unchanged" if pipe in current_pipes else "changed"

    outcome = {pipe.pipe: change(pipe) for pipe in pipes}
    if delete_missing:
        outcome |= dict.fromkeys((revisions.keys() | registry.held.keys()) - outcome.keys(), "deleted")
    return dict(sorted(outcome.items()))


async def _brokers(bootstrap: str) -> int:
    admin = admin_client(bootstrap, "hifi-setup")
    try:
        while True:
            try:
                await admin.start()
                break
            except KafkaError:
                await asyncio.sleep(0.2)
        return len((await admin.describe_cluster())["brokers"])
    finally:
        await admin.close()
