"""The time by the clocks of Kafka's brokers, as far as records tell it: no clock of a host has a part in it. Pure."""


class AppendClock:
    """The newest append time that is known, and the monotonic time since then: never ahead of the brokers."""

    def __init__(self, append_ms: int, read_s: float) -> None:
        """See `note`."""
        self._offset_ms = append_ms - read_s * 1000

    def note(self, append_ms: int, read_s: float) -> None:
        """Take in a record.

        Args:
            append_ms: its append time, milliseconds since 1970 UTC.
            read_s: monotonic time after it was read, seconds.
        """
        self._offset_ms = max(self._offset_ms, append_ms - read_s * 1000)

    def time_ms(self, now_s: float) -> int:
        """The time that the brokers' clocks have reached at least, milliseconds since 1970 UTC.

        Args:
            now_s: monotonic time, seconds.
        """
        return int(self._offset_ms + now_s * 1000)
