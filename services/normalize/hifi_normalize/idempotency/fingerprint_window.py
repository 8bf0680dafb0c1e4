"""Fingerprints of one partition's recent events, and the decision whether an event was sent before. Pure.

Time is the append time in `raw`, so the decision on a record does not depend on when or where it is made.
"""

from enum import Enum
from typing import Final

from hifi_normalize.idempotency.fingerprint import Fingerprint

_BUCKETS: Final = 8
"""Fingerprints are removed by the bucket, so up to an eighth more than the window is kept."""
_KEY_BITS: Final = 64
_OFFSET_BITS: Final = 40
_TIME_BITS: Final = 42
_IDENTITY_BITS: Final = 32
_GOLDEN_RATIO: Final = 0x9E3779B97F4A7C15
"""2^64 divided by the golden ratio: an odd number that spreads the keys of further data of one id."""


class Repetition(Enum):
    """The relation of an event to earlier events."""

    NEW = "new"
    """The first event with its id in the window."""
    REUSED_ID = "reused-id"
    """The newest event with the id has other data, so this one is another event."""
    COPY = "copy"
    """The same event: written again by hifi, or read again if the offset is its own."""
    REPEATED = "repeated"
    """Its client sent it before, and no other data with the id since."""


class FingerprintWindow:
    """The fingerprints of one partition. Records are checked in the order of their offsets."""

    def __init__(self, window_ms: int) -> None:
        """An empty window.

        Args:
            window_ms: how long a fingerprint is kept, milliseconds.
        """
        self._window_ms = window_ms
        self._bucket_ms = max(window_ms // _BUCKETS, 1)
        self._buckets: list[tuple[int, dict[int, int]]] = []
        """Start and content of each bucket, oldest first; a fingerprint is packed into one integer."""
        self._shortened_ms: int | None = None
        """Fingerprints up to this time were removed early."""

    def __len__(self) -> int:
        return sum(len(packed_by_key) for _, packed_by_key in self._buckets)

    @property
    def oldest_ms(self) -> int | None:
        """Start of the oldest bucket, milliseconds since 1970 UTC."""
        return self._buckets[0][0] if self._buckets else None

    def check(self, event: Fingerprint) -> tuple[Repetition, int]:
        """Decide whether an event was sent before, and keep its fingerprint if its id or data is new.

        Returns:
            The decision, and the offset in `raw` of the event that it repeats (its own if it repeats none).
        """
        newest_packed = self._find(event.key, event.at_ms)
        if newest_packed is None:
            self._add(event.key, event)
            return Repetition.NEW, event.offset
        repeats_newest = _data(newest_packed) == event.data
        if repeats_newest and _identity(newest_packed) == event.identity:
            return Repetition.COPY, _offset(newest_packed)
        superseded_packed = self._find(_further_key(event.key, event.data), event.at_ms)
        if superseded_packed is not None and (_data(superseded_packed), _identity(superseded_packed)) == (
            event.data,
            event.identity,
        ):
            return Repetition.COPY, _offset(superseded_packed)
        if repeats_newest:
            return Repetition.REPEATED, _offset(newest_packed)
        # The newest data of an id is kept under the id's own key: when it expires, so have all older ones.
        self._store(_further_key(event.key, _data(newest_packed)), newest_packed)
        self._add(event.key, event)
        return Repetition.REUSED_ID, event.offset

    def expire(self, now_ms: int) -> None:
        """Remove buckets that ended before the window, which ends at `now_ms`, milliseconds since 1970 UTC."""
        buckets = self._buckets
        while buckets and buckets[0][0] + self._bucket_ms < now_ms - self._window_ms:
            del buckets[0]

    def shorten(self) -> int:
        """Remove the oldest bucket before its time, and return the number of its fingerprints."""
        if not self._buckets:
            return 0
        start_ms, packed_by_key = self._buckets.pop(0)
        self._shortened_ms = start_ms + self._bucket_ms
        return len(packed_by_key)

    def covered_ms(self, now_ms: int) -> int:
        """Time before `now_ms` for which all fingerprints are kept, milliseconds: the window unless shortened."""
        if self._shortened_ms is None:
            return self._window_ms
        return max(0, min(self._window_ms, now_ms - self._shortened_ms))

    def _add(self, key: int, event: Fingerprint) -> None:
        buckets = self._buckets
        if not buckets or event.at_ms >= buckets[-1][0] + self._bucket_ms:
            buckets.append((event.at_ms, {}))
            self.expire(event.at_ms)
        packed_digests = event.data << _IDENTITY_BITS | event.identity
        buckets[-1][1][key] = (packed_digests << _TIME_BITS | event.at_ms) << _OFFSET_BITS | event.offset

    def _store(self, key: int, packed: int) -> None:
        self._buckets[-1][1][key] = packed

    def _find(self, key: int, at_ms: int) -> int | None:
        """The newest fingerprint under a key, if it is in the window."""
        for _, packed_by_key in reversed(self._buckets):
            packed = packed_by_key.get(key)
            if packed is not None:
                age_ms = at_ms - (packed >> _OFFSET_BITS & (1 << _TIME_BITS) - 1)
                return packed if age_ms <= self._window_ms else None
        return None


def _further_key(key: int, data: int) -> int:
    """The key under which data of an id is kept that is not its newest."""
    return 1 << _KEY_BITS | (key + data * _GOLDEN_RATIO) % (1 << _KEY_BITS)


def _data(packed: int) -> int:
    return packed >> _OFFSET_BITS + _TIME_BITS + _IDENTITY_BITS


def _identity(packed: int) -> int:
    return packed >> _OFFSET_BITS + _TIME_BITS & (1 << _IDENTITY_BITS) - 1


def _offset(packed: int) -> int:
    return packed & (1 << _OFFSET_BITS) - 1
