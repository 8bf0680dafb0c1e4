"""Parts of a tour: each waits until something is true, tells what it sees meanwhile, and is kept for the report."""

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from hifi.runtime.errors import HifiError

T = TypeVar("T")
PART_S: Final = 300
_POLL_S: Final = 0.5


@dataclass(frozen=True, slots=True)
class TourPart:
    """A part that has ended: what it shows, what was seen, and whether that is what should be."""

    name: str
    ok: bool
    seconds: float
    seen: str

    def json(self) -> dict[str, Any]:
        """JSON for the report."""
        return {"name": self.name, "ok": self.ok, "seconds": round(self.seconds, 1), "seen": self.seen}


class PartFailed(HifiError):
    """A part of the tour did not show what it should; the text says what was seen."""


@dataclass(slots=True)
class TourParts:
    """The parts of a tour.

    Attributes:
        tell: prints a line about the progress.
        ended: those that have ended.
    """

    tell: Callable[[str], None]
    ended: list[TourPart] = field(default_factory=list)

    @contextlib.contextmanager
    def part(self, name: str) -> Iterator[list[str]]:
        """Run a part, print its outcome and keep it. The block appends its remarks to the list that it gets."""
        self.tell(f"{len(self.ended) + 1}. {name}")
        began_s = time.monotonic()
        remarks: list[str] = []
        failure: HifiError | None = None
        try:
            yield remarks
        except HifiError as error:
            failure = error
        text = str(failure) if failure else "; ".join(remarks)
        part = TourPart(name, failure is None, time.monotonic() - began_s, text)
        self.ended.append(part)
        self.tell(f"   {'' if part.ok else 'NOT '}shown after {part.seconds:.0f} s: {text}")
        if failure:
            raise PartFailed(str(failure)) from failure

    async def until(
        self,
        read_state: Callable[[], Awaitable[T]],
        is_reached: Callable[[T], bool],
        describe: Callable[[T], str],
        within_s: float = PART_S,
    ) -> T:
        """Read until a condition holds, and tell what is seen whenever that changes.

        Raises:
            PartFailed: it does not hold within the bound.
        """
        last_text, end_s = "", time.monotonic() + within_s
        while True:
            state = await read_state()
            if is_reached(state):
                return state
            if (text := describe(state)) != last_text:
                last_text = text
                self.tell(f"   {text}")
            if time.monotonic() > end_s:
                raise PartFailed(f"not within {within_s:g} s; last seen: {text}")
            await asyncio.sleep(_POLL_S)


def require(condition: bool, remark: str) -> None:
    """Raise PartFailed with a remark unless a condition holds."""
    if not condition:
        raise PartFailed(remark)
