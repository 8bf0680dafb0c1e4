"""Sets up a stream: its topics, its partition count and its pipes."""

import asyncio
import os
from collections.abc import Mapping, Sequence
from typing import Final

from aiokafka.errors import KafkaError

from hifi.delivery.installed_kinds import completed
from hifi.delivery.several_logs import require_fit_for_colours
from hifi.kafka.admin import create_topics, partition_counts
from hifi.kafka.clients import admin_client
from hifi.kafka.topics import PrincipalTopics, Topics
from hifi.pipe import rollout
from hifi.pipe.limit_check import require_allowed, require_mask_keys
from hifi.pipe.model import Pipe
from hifi.pipe.registry import RegistrySnapshot, publish, read_registry, stream_record
from hifi.pipe.revision import PipeRevision
from hifi.pipe.shared_keys import require_keys_of_their_own
from hifi.record.record import Record
from hifi.runtime.errors import Misconfigured, Retryable
from hifi_infra.kafka.kraft import replication

DEFAULT_PARTITIONS: Final = 4
ANSWER_S: Final = 30.0


async def prepare(
    bootstrap: str,
    topics: Topics,
    partitions: int | None,
    control: PrincipalTopics | None = None,
    *,
    create: bool = True,
    coloured: bool = False,
) -> int:
    """Create missing topics and the stream's record; repeating it changes nothing.

    Args:
        bootstrap: `HOST:PORT,…`.
        topics: the stream's.
        partitions: of each event topic; None: as many as the stream has, else four.
        control: topics of the control plane, or of principals and audit only; None: they are in another Kafka.
        create: False: only check that the topics exist as they must be.
        coloured: the stream is one of two colours; its record says so from then on.

    Returns:
        The stream's partition count.

    Raises:
        Misconfigured: Kafka does not answer, the stream has another count or records of a later format, or it is
            coloured and has a pipe that would lose events.
    """
    try:
        async with asyncio.timeout(ANSWER_S):
            copies, _ = replication(await _brokers(bootstrap))
            existing = await partition_counts(bootstrap, [topics.raw, topics.pipes])
            if topics.pipes in existing:  # refuses the stream of a later release before anything changes
                await read_registry(bootstrap, topics)
            count = partitions or existing.get(topics.raw, DEFAULT_PARTITIONS)
            await create_topics(bootstrap, topics, partitions=count, replication=copies, create=create)
            if control is not None:
                await create_topics(bootstrap, control, partitions=1, replication=copies, create=create)
            published = await read_registry(bootstrap, topics)
            if coloured:
                require_fit_for_colours(in_force(published))
            if published.partitions is None or (coloured and not published.coloured):
                await publish(bootstrap, topics, [stream_record(count, coloured=coloured)])
            return count
    except (TimeoutError, KafkaError, OSError, Retryable) as error:
        why = f": {error}" if str(error) else ""
        raise Misconfigured(
            f"Kafka at {bootstrap} did not answer as expected within {ANSWER_S:.0f} s{why}; "
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
            mask cannot be read, the settings of a destination are not valid, one would lose events of a colour, a
            rollout of another declaration runs, what is published of it cannot be read, or Kafka does not answer.
    """
    require_allowed(pipes)
    pipes = [completed(pipe) for pipe in pipes]
    published = await read_registry(bootstrap, topics)
    rollout.require_readable(published, sorted(pipe.pipe for pipe in pipes))
    if published.coloured:
        require_fit_for_colours(pipes)
    require_keys_of_their_own(pipes, [] if delete_missing else in_force(published), variables)
    require_mask_keys(pipes, {name: revision.pipe for name, revision in published.pipes.items()}, variables)
    outcome = compare(published, pipes, delete_missing=delete_missing)
    by_name = {pipe.pipe: pipe for pipe in pipes}
    if share is not None:
        outcome = {name: _with_share(published, name, by_name, change) for name, change in outcome.items()}
    records = [
        record
        for name, change in outcome.items()
        for record in _records(published, name, by_name.get(name), change, share)
    ]
    if records:
        await publish(bootstrap, topics, records)
    return outcome


def in_force(published: RegistrySnapshot) -> list[Pipe]:
    """The pipes in force, and those of rollouts that run."""
    versions = published.pipes.values()
    return [revision.pipe for revision in versions] + [
        revision.rollout.next.pipe for revision in versions if revision.rollout
    ]


def _with_share(published: RegistrySnapshot, name: str, pipes: Mapping[str, Pipe], change: str) -> str:
    """The change where a declaration gets only a share: a new pipe has no revision to share with."""
    current = published.pipes.get(name)
    is_rolling = (
        current is not None and current.rollout is not None and current.rollout.next.pipe == pipes.get(name)
    )
    return "rolling out" if change == "changed" or is_rolling else change


def _records(
    published: RegistrySnapshot, name: str, pipe: Pipe | None, change: str, share: int | None
) -> list[Record]:
    if change == "unchanged":
        return []
    if pipe is None:
        return rollout.delete(published, name)
    if change != "rolling out" or share is None:
        return rollout.put_at_once(published, pipe)
    running = published.pipes[name].rollout
    if running is not None and running.next.pipe == pipe:
        return rollout.change_share(published, name, share)
    return rollout.begin(published, pipe, share)


def compare(published: RegistrySnapshot, pipes: Sequence[Pipe], *, delete_missing: bool) -> dict[str, str]:
    """Pipe to its change, ordered by name: `new`, `changed`, `unchanged` or `deleted`."""
    revisions: Mapping[str, PipeRevision] = published.pipes

    def change(pipe: Pipe) -> str:
        if pipe.pipe not in revisions:
            return "new"
        current = revisions[pipe.pipe]
        in_use = [current.pipe, *([current.rollout.next.pipe] if current.rollout else [])]
        return "unchanged" if pipe in in_use else "changed"

    outcome = {pipe.pipe: change(pipe) for pipe in pipes}
    if delete_missing:
        outcome |= dict.fromkeys((revisions.keys() | published.held.keys()) - outcome.keys(), "deleted")
    return dict(sorted(outcome.items()))


async def _brokers(bootstrap: str) -> int:
    admin = admin_client(bootstrap)
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
