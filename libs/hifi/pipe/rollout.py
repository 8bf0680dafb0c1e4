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


def require_readable(published: RegistrySnapshot, names: Iterable[str]) -> None:
    """Check that no pipe is held: what cannot be read must not be replaced, since it may be newer. It can be deleted.

    Raises:
        Misconfigured: one is.
    """
    reasons = [f"the pipe {name} is held: {published.held[name]}" for name in names if name in published.held]
    if reasons:
        raise Misconfigured(f"{'; '.join(reasons)}. Nothing was changed. {HELD_ADVICE}")


def put_at_once(
    published: RegistrySnapshot, pipe: Pipe, *, paused: bool = False, cap: RateCap | None = None
) -> list[Record]:
    """Put a declaration into force for all events, also those that were accepted with another revision.

    A rollout that runs ends, and revisions that were kept for events on their way are dropped: what waits for a
    destination is delivered as declared now. A pipe that is paused stays paused.

    Args:
        published: the stream's pipes.
        pipe: the declaration.
        paused: whether a new pipe begins paused.
        cap: of a new pipe; None: only its quota limits it.

    Raises:
        Misconfigured: the pipe is held.
    """
    name = pipe.pipe
    require_readable(published, [name])
    before = published.pipes.get(name)
    if before is None:
        return [pipe_record(pipe, paused=paused, cap=cap), *_deletions(published, name)]
    revision = _unused(published, name)
    return [pipe_record(pipe, revision, paused=before.paused, cap=cap), *_deletions(published, name)]


def change_cap(published: RegistrySnapshot, name: str, cap: RateCap | None) -> list[Record]:
    """Let a new pipe take another rate; None: only its quota limits it.

    Raises:
        Misconfigured: there is no such pipe, or it is held.
    """
    return [_with_next(replace(_current(published, name), cap=cap), None)]


def change_pause(published: RegistrySnapshot, name: str, *, paused: bool) -> list[Record]:
    """Pause a pipe, or let it take events again. Its revisions and their shares stay as they are.

    Raises:
        Misconfigured: there is no such pipe, or it is held.
    """
    current = _current(published, name)
    following = None
    if current.rollout is not None:
        following = NextRevision(revision=current.rollout.next.number, share=current.rollout.share)
    return [_with_next(replace(current, paused=paused), following)]


def delete(published: RegistrySnapshot, name: str) -> list[Record]:
    """Delete a pipe."""
    return [deletion_record(name), *_deletions(published, name)]


def begin(published: RegistrySnapshot, pipe: Pipe, share: int) -> list[Record]:
    """Begin a rollout: a share of the keys gets the declaration as the next revision.

    Args:
        published: the stream's pipes.
        pipe: the declaration.
        share: in 1/10,000.

    Raises:
        Misconfigured: there is no current revision to compare with, another rollout of the pipe runs, or it is held.
    """
    current = _current(published, pipe.pipe)
    if current.rollout is not None:
        raise Misconfigured(
            f"a rollout of the pipe {pipe.pipe} runs: `hifi rollout promote {pipe.pipe}` or "
            f"`hifi rollout abort {pipe.pipe}` first"
        )
    revision = _unused(published, pipe.pipe)
    return [body_record(pipe, revision), _with_next(current, NextRevision(revision=revision, share=share))]


def change_share(published: RegistrySnapshot, name: str, share: int) -> list[Record]:
    """Give the next revision another share of the keys, in 1/10,000.

    Raises:
        Misconfigured: no rollout of the pipe runs, or the pipe is held.
    """
    current, rollout = _rolling(published, name)
    return [_with_next(current, NextRevision(revision=rollout.next.number, share=share))]


def promote(published: RegistrySnapshot, name: str) -> list[Record]:
    """Make the next revision the current one. The one before is kept for its events on their way.

    Raises:
        Misconfigured: no rollout of the pipe runs, or the pipe is held.
    """
    current, rollout = _rolling(published, name)
    following = rollout.next
    return [
        body_record(current.pipe, current.number),
        pipe_record(following.pipe, following.number, since=following.offset, paused=current.paused),
        deletion_record(revision_key(name, following.number)),
        *_deletions(published, name, but={current.number, following.number}),
    ]


def abort(published: RegistrySnapshot, name: str) -> list[Record]:
    """End a rollout: all new events get the current revision. The next one is kept for its events on their way.

    Raises:
        Misconfigured: no rollout of the pipe runs, or the pipe is held.
    """
    current, rollout = _rolling(published, name)
    return [_with_next(current, None), *_deletions(published, name, but={rollout.next.number})]


def percent(share: int) -> str:
    """A share as text, such as `1 %` or `0.5 %`."""
    return f"{share * 100 / WHOLE:g} %"


def cap_text(cap: RateCap | None) -> str:
    """What a new pipe may take, such as `up to 10 events/s (1 %)`."""
    return "all events" if cap is None else f"up to {cap.events_per_s:g} events/s ({percent(cap.share)})"


def _with_next(current: PipeRevision, following: NextRevision | None) -> Record:
    return pipe_record(
        current.pipe,
        current.number,
        since=current.offset,
        following=following,
        paused=current.paused,
        cap=current.cap,
    )


def _current(published: RegistrySnapshot, name: str) -> PipeRevision:
    require_readable(published, [name])
    current = published.pipes.get(name)
    if current is None:
        raise Misconfigured(f"there is no pipe {name}; `hifi pipes` lists those that are in force")
    return current


def _rolling(published: RegistrySnapshot, name: str) -> tuple[PipeRevision, Rollout]:
    current = _current(published, name)
    if current.rollout is None:
        raise Misconfigured(f"no rollout of the pipe {name} runs; `hifi apply --share` begins one")
    return current, current.rollout


def _unused(published: RegistrySnapshot, name: str) -> int:
    """A number above those of all revisions in use."""
    return max([published.pipes[name].number, *published.others.get(name, ())]) + 1


def _deletions(published: RegistrySnapshot, name: str, but: Sequence[int] | set[int] = ()) -> list[Record]:
    return [
        deletion_record(revision_key(name, revision))
        for revision in published.others.get(name, ())
        if revision not in but
    ]
