"""The work of one instance from one reading to the next. Pure."""

from dataclasses import dataclass
from typing import Final

from hifi.control.sequential_test import Outcomes
from hifi_deploy.instance_reading import InstanceReading

_IDLE_CORES: Final = 0.05
"""CPU that an instance uses without events, so that one with few partitions is not charged for it."""


@dataclass(frozen=True, slots=True)
class Growth:
    """Increase of the counters of an instance, or of several."""

    events: int = 0
    dead_letters: int = 0
    failures: int = 0

    def __add__(self, other: "Growth") -> "Growth":
        return Growth(
            self.events + other.events, self.dead_letters + other.dead_letters, self.failures + other.failures
        )

    def outcomes(self, failed: int) -> Outcomes:
        """The events and their failures. A delivery that failed may belong to an event of an earlier look."""
        return Outcomes(max(self.events, failed), failed)


class InstanceAccount:
    """Adds up the readings of one instance.

    Args:
        first_reading: counts before it are left out.
        now_s: monotonic time.
    """

    def __init__(self, first_reading: InstanceReading, now_s: float) -> None:
        self.events = 0
        """Events of this period."""
        self.measured_events = 0
        """Those of them for which its CPU time is known."""
        self._cpu_s = self._measured_s = 0.0
        self._newest = first_reading
        self._newest_s = now_s
        self._first_rss_bytes = self._rss_bytes = first_reading.rss_bytes

    @property
    def grown_bytes(self) -> int:
        """Growth of its resident memory in this period."""
        return (self._rss_bytes or 0) - (self._first_rss_bytes or 0)

    def start_period(self) -> None:
        """Count from the newest reading."""
        self.events = self.measured_events = 0
        self._cpu_s = self._measured_s = 0.0
        self._first_rss_bytes = self._rss_bytes

    def add(self, instance: InstanceReading, now_s: float) -> Growth:
        """Take in a reading; returns the growth since the previous one."""
        if instance.events is None:
            return Growth()
        previous_reading, self._newest = self._newest, instance
        elapsed_s, self._newest_s = now_s - self._newest_s, now_s
        events, dead_letters, failures = (
            previous_reading.events or 0,
            previous_reading.dead_letters,
            previous_reading.failures,
        )
        if (
            previous_reading.restarts != instance.restarts or instance.events < events
        ):  # a new process counts from 0
            events = dead_letters = failures = 0
        growth = Growth(
            instance.events - events,
            max(0, instance.dead_letters - dead_letters),
            max(0, instance.failures - failures),
        )
        self.events += growth.events
        if instance.cpu_s is not None and previous_reading.cpu_s is not None:
            self._cpu_s += max(0.0, instance.cpu_s - previous_reading.cpu_s)
            self._measured_s += elapsed_s
            self.measured_events += growth.events
        if instance.rss_bytes is not None:
            self._rss_bytes = instance.rss_bytes
            self._first_rss_bytes = self._first_rss_bytes or instance.rss_bytes
        return growth

    def cpu_an_event_s(self) -> float:
        """CPU time an event of this period, beyond that of an idle process, seconds."""
        idle_s = _IDLE_CORES * self._measured_s
        return max(0.0, self._cpu_s - idle_s) / self.measured_events if self.measured_events else 0.0
