"""When a waiting delivery is due: pure."""

from hifi.clock import MICROSECONDS


def due_s(appended_ms: int, delay_s: float, now_us: int, monotonic_s: float) -> float:
    """The moment, on the monotonic clock, at which a record is due.

    It is the append time plus the delay, but never later than the delay from now: if the wall clock of this machine
    or of the broker was set back, nothing waits for longer than its delay once more.

    Args:
        appended_ms: Kafka's append time of the record, milliseconds since 1970 UTC.
        delay_s: of the tier, seconds.
        now_us: wall time at the fetch, microseconds since 1970 UTC.
        monotonic_s: the monotonic clock at the same moment, seconds.
    """
    wait_s = appended_ms / 1000 + delay_s - now_us / MICROSECONDS
    return monotonic_s + min(max(0.0, wait_s), delay_s)
