"""The transitions of a pipe's revisions, as records to write in their order. Pure.

Each transition is complete with its last record but one or with its only one, and a crash in between leaves a state in
which every event has exactly one revision: bodies are written before they are named, and deleted after.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from hifi.pipe.model import Pipe
from hifi.pipe.registry import HELD_ADVICE, RegistrySnapshot
from hifi.pipe.revision import (
    WHOLE,
    NextRevision,
    PipeRevision,
    RateCap,
    Rollout,
    body_record,
    deletion_record,
    pipe_record,
    revision_key,
)
from hifi.record.record import Record
from hifi.runtime.errors import Misconfigured


def require_readable(snapshot: RegistrySnapshot, names: Iterable[str]) -> None:
    """Check that no pipe is held: what cannot be read must not be replaced, since it may be newer. It can be deleted.

    Raises:
        Misconfigured: one is.
    """
    reasons = [f"the pipe {name} is held: {snapshot.held[name]}" for name in names if name in snapshot.held]
    if reasons:
        raise Misconfigured(f"{'; '.join(reasons)}. Nothing was changed. {HELD_ADVICE}")


def put_at_once(
    snapshot: RegistrySnapshot, pipe: Pipe, *, paused: bool | None = None, cap: RateCap | None = None
) -> list[Record]:
    """Put a declaration into force for all events, also those that were accepted with another revision.

    A rollout that runs ends, and revisions that were kept for events on their way are dropped: what waits for a
    destination is delivered as declared now.

    Args:
        snapshot: the stream's pipes.
        pipe: the declaration.
        paused: whether the pipe takes no new events; None: as before, which is false for a new pipe.
        cap: of a new pipe; None: only its quota limits it.

    Raises:
        Misconfigured: the pipe is held.
    """
    name = pipe.pipe
    require_readable(snapshot, [name])
    current_revision = snapshot.pipes.get(name)
    if current_revision is None:
        return [pipe_record(pipe, paused=bool(paused), cap=cap), *_deletions(snapshot, name)]
    revision = _unused_number(snapshot, name)
    paused = current_revision.paused if paused is None else paused
    return [pipe_record(pipe, revision, paused=paused, cap=cap), *_deletions(snapshot, name)]


def change_cap(snapshot: RegistrySnapshot, name: str, cap: RateCap | None) -> list[Record]:
    """Let a new pipe take another rate; None: only its quota limits it.

    Raises:
        Misconfigured: there is no such pipe, or it is held.
    """
    return [_with_next(replace(_current(snapshot, name), cap=cap), None)]


def change_pause(snapshot: RegistrySnapshot, name: str, *, paused: bool) -> list[Record]:
    """Pause a pipe, or let it take events again. Its revisions and their shares stay as they are.

    Raises:
        Misconfigured: there is no such pipe, or it is held.
    """
    current_revision = _current(snapshot, name)
    next_revision = None
    if current_revision.rollout is not None:
        next_revision = NextRevision(
            revision=current_revision.rollout.next.number, share=current_revision.rollout.share
        )
    return [_with_next(replace(current_revision, paused=paused), next_revision)]


def delete(snapshot: RegistrySnapshot, name: str) -> list[Record]:
    """Delete a pipe."""
    return [deletion_record(name), *_deletions(snapshot, name)]


def begin(snapshot: RegistrySnapshot, pipe: Pipe, share: int) -> list[Record]:
    """Begin a rollout: a share of the keys gets the declaration as the next revision.

    Args:
        snapshot: the stream's pipes.
        pipe: the declaration.
        share: in 1/10,000.

    Raises:
        Misconfigured: there is no current revision to compare with, another rollout of the pipe runs, or it is held.
    """
    current_revision = _current(snapshot, pipe.pipe)
    if current_revision.rollout is not None:
        raise Misconfigured(
            f"a rollout of the pipe {pipe.pipe} runs: `hifi rollout promote {pipe.pipe}` or "
            f"`hifi rollout abort {pipe.pipe}` first"
        )
    revision = _unused_number(snapshot, pipe.pipe)
    return [
        body_record(pipe, revision),
        _with_next(current_revision, NextRevision(revision=revision, share=share)),
    ]


def change_share(snapshot: RegistrySnapshot, name: str, share: int) -> list[Record]:
    """Give the next revision another share of the keys, in 1/10,000.

    Raises:
        Misconfigured: no rollout of the pipe runs, or the pipe is held.
    """
    current_revision, rollout = _rolling(snapshot, name)
    return [_with_next(current_revision, NextRevision(revision=rollout.next.number, share=share))]


def promote(snapshot: RegistrySnapshot, name: str) -> list[Record]:
    """Make the next revision the current one. The one before is kept for its events on their way.

    Raises:
        Misconfigured: no rollout of the pipe runs, or the pipe is held.
    """
    current_revision, rollout = _rolling(snapshot, name)
    next_revision = rollout.next
    return [
        body_record(current_revision.pipe, current_revision.number),
        pipe_record(
            next_revision.pipe,
            next_revision.number,
            since=next_revision.offset,
            paused=current_revision.paused,
        ),
        deletion_record(revision_key(name, next_revision.number)),
        *_deletions(snapshot, name, kept_revisions={current_revision.number, next_revision.number}),
    ]


def abort(snapshot: RegistrySnapshot, name: str) -> list[Record]:
    """End a rollout: all new events get the current revision. The next one is kept for its events on their way.

    Raises:
        Misconfigured: no rollout of the pipe runs, or the pipe is held.
    """
    current_revision, rollout = _rolling(snapshot, name)
    return [
        _with_next(current_revision, None),
        *_deletions(snapshot, name, kept_revisions={rollout.next.number}),
    ]


def percent(share: int) -> str:
    """A share as text, such as `1 %` or `0.5 %`."""
    return f"{share * 100 / WHOLE:g} %"


def cap_text(cap: RateCap | None) -> str:
    """The rate that a new pipe may take, such as `up to 10 events/s (1 %)`."""
    return "all events" if cap is None else f"up to {cap.events_per_s:g} events/s ({percent(cap.share)})"


def _with_next(current_revision: PipeRevision, next_revision: NextRevision | None) -> Record:
    return pipe_record(
        current_revision.pipe,
        current_revision.number,
        since=current_revision.offset,
        following=next_revision,
        paused=current_revision.paused,
        cap=current_revision.cap,
    )


def _current(snapshot: RegistrySnapshot, name: str) -> PipeRevision:
    require_readable(snapshot, [name])
    current_revision = snapshot.pipes.get(name)
    if current_revision is None:
        raise Misconfigured(f"there is no pipe {name}; `hifi pipes` lists those that are in force")
    return current_revision


def _rolling(snapshot: RegistrySnapshot, name: str) -> tuple[PipeRevision, Rollout]:
    current_revision = _current(snapshot, name)
    if current_revision.rollout is None:
        raise Misconfigured(f"no rollout of the pipe {name} runs; `hifi apply --share` begins one")
    return current_revision, current_revision.rollout


def _unused_number(snapshot: RegistrySnapshot, name: str) -> int:
    """A number above those of all revisions in use."""
    return max([snapshot.pipes[name].number, *snapshot.others.get(name, ())]) + 1


def _deletions(
    snapshot: RegistrySnapshot, name: str, kept_revisions: Sequence[int] | set[int] = ()
) -> list[Record]:
    return [
        deletion_record(revision_key(name, revision))
        for revision in snapshot.others.get(name, ())
        if revision not in kept_revisions
    ]
