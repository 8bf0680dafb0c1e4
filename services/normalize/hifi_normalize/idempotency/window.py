"""Which events of a partition a client sent before: the ids of the last minutes, with digests of their data. Pure.

Time is the append time in `raw`, so the verdict on a record is the same whenever and by whomever it is given.
"""

from enum import Enum
from typing import Final, NamedTuple

_BUCKETS: Final = 8
"""Ids are forgotten by the bucket: memory holds up to an eighth more than the window."""
_KEY_BITS: Final = 64
_OFFSET_BITS: Final = 40
_TIME_BITS: Final = 42
_COPY_BITS: Final = 32
_OTHER: Final = 0x9E3779B97F4A7C15
"""An odd number (2^64 by the golden ratio) that spreads the places of one id's further data."""


class Given(NamedTuple):
    """What is remembered of an event with an id that its client gave."""

    key: int
    """Digest of pipe, source and id, 64 bits."""
    data: int
    """Digest of the data, 64 bits."""
    copy: int
    """Digest of the event's identity within hifi, 32 bits: copies made by hifi itself have the same."""
    at_ms: int
    """When `raw` took it, milliseconds since 1970 UTC."""
    offset: int
    """In `raw`."""


class Verdict(Enum):
    """What an event is to those before it."""

    NEW = "new"
    """The first with its id within the window."""
    REUSED = "reused"
    """Its id came before, with other data."""
    COPY = "copy"
    """The same event again, written or read twice by hifi itself: egest knows it."""
    REPEAT = "repeat"
    """Its client sent it before."""


class Window:
    """What one partition remembers. Records come in the order of their offsets."""

    def __init__(self, window_ms: int) -> None:
        """Remember nothing.

        Args:
            window_ms: how long an id is remembered, milliseconds.
        """
        self._window_ms = window_ms
        self._span_ms = max(window_ms // _BUCKETS, 1)
        self._buckets: list[tuple[int, dict[int, int]]] = []
        """Start and content of each, oldest first; what is remembered of an event is packed into one number."""
        self._forgotten_ms: int | None = None
        """Up to when ids were forgotten although the window was not over."""

    def __len__(self) -> int:
        return sum(len(content) for _, content in self._buckets)

    @property
    def oldest_ms(self) -> int | None:
        """Start of the oldest bucket, milliseconds since 1970 UTC."""
        return self._buckets[0][0] if self._buckets else None

    def judge(self, given: Given) -> tuple[Verdict, int]:
        """Whether an event came before; where it is the first with its id or its data, it is remembered.

        Returns:
            The verdict, and the offset in `raw` of the event that it repeats (its own where it repeats none).
        """
        newest = self._find(given.key, given.at_ms)
        if newest is None:
            self._remember(given.key, given)
            return Verdict.NEW, given.offset
        found: int | None = newest
        if _data(newest) != given.data:
            found = self._find(_further(given.key, given.data), given.at_ms)
            if found is None or _data(found) != given.data:
                # The newest of an id has the id's own place: once that one is forgotten, so are all before it.
                self._put(_further(given.key, _data(newest)), newest)
                self._remember(given.key, given)
                return Verdict.REUSED, given.offset
        assert found is not None
        is_copy = found >> _OFFSET_BITS + _TIME_BITS & (1 << _COPY_BITS) - 1 == given.copy
        return (Verdict.COPY if is_copy else Verdict.REPEAT), found & (1 << _OFFSET_BITS) - 1

    def forget(self, now_ms: int) -> None:
        """Let go of buckets that lie before the window that ends at `now_ms`, milliseconds since 1970 UTC."""
        buckets = self._buckets
        while buckets and buckets[0][0] + self._span_ms < now_ms - self._window_ms:
            del buckets[0]

    def shorten(self) -> int:
        """Forget the oldest bucket although its time is not over; how many ids that were."""
        if not self._buckets:
            return 0
        start_ms, content = self._buckets.pop(0)
        self._forgotten_ms = start_ms + self._span_ms
        return len(content)

    def covered_ms(self, now_ms: int) -> int:
        """How far back from `now_ms` every id is known, milliseconds; the window, unless it was shortened."""
        if self._forgotten_ms is None:
            return self._window_ms
        return max(0, min(self._window_ms, now_ms - self._forgotten_ms))

    def _remember(self, key: int, given: Given) -> None:
        buckets = self._buckets
        if not buckets or given.at_ms >= buckets[-1][0] + self._span_ms:
            buckets.append((given.at_ms, {}))
            self.forget(given.at_ms)
        packed = given.data << _COPY_BITS | given.copy
        self._put(key, (packed << _TIME_BITS | given.at_ms) << _OFFSET_BITS | given.offset)

    def _put(self, key: int, packed: int) -> None:
        self._buckets[-1][1][key] = packed

    def _find(self, key: int, at_ms: int) -> int | None:
        """The newest that is remembered under a key and lies within the window."""
        for _, content in reversed(self._buckets):
            found = content.get(key)
            if found is not None:
                since_ms = at_ms - (found >> _OFFSET_BITS & (1 << _TIME_BITS) - 1)
                return found if since_ms <= self._window_ms else None
        return None


def _further(key: int, data: int) -> int:
    """Where an id's data is kept that is not its newest."""
    return 1 << _KEY_BITS | (key + data * _OTHER) % (1 << _KEY_BITS)


def _data(packed: int) -> int:
    return packed >> _OFFSET_BITS + _TIME_BITS + _COPY_BITS
