"""Whether instances of a new release are better, equal or worse than their peers of the release before. Pure.

Every figure is compared with the peers at the same time, never with a fixed bound alone: a slow broker or a sick
destination concerns both. Failed events go through a sequential test, whose error holds however often it looks. A
figure that can jump for a moment (lag, memory, CPU time) has to be worse for several looks in a row.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from hifi.control.sequential_test import Outcomes, SequentialTest
from hifi_deploy.instance_account import Growth, InstanceAccount
from hifi_deploy.instance_reading import InstanceReading

CPU_FACTOR: Final = 1.5
"""CPU time an event, relative to the peer that needs most."""
_MEMORY_FACTOR: Final = 1.3
_MEMORY_ALLOWANCE_BYTES: Final = 48 * 2**20
_GROWTH_ALLOWANCE_BYTES: Final = 48 * 2**20
_READY_FACTOR: Final = 2.0
_READY_ALLOWANCE_S: Final = 15.0
_RESTARTS: Final = 1
"""Restarts that may have another cause than the release, such as a lack of memory of the machine."""
_IN_A_ROW: Final = 5
"""Looks, one a second, for which a figure that can jump has to be worse."""


class ReleaseComparison(StrEnum):
    """How the new release compares with the one before."""

    BETTER = "better"
    EQUAL = "equal"
    WORSE = "worse"
    TOO_LITTLE = "too little to judge"


@dataclass(frozen=True, slots=True)
class ReleaseJudgement:
    """What came out, with the reason for people."""

    comparison: ReleaseComparison
    reason: str


@dataclass(frozen=True, slots=True)
class JudgeRules:
    """How instances are compared.

    Attributes:
        stable_s: time for which every new instance has to be ready before the release can be called equal, seconds.
        events: that the new and, if there are any, the old instances must have processed in that time.
        ready_s: time within which an instance has to become ready, seconds.
        lag_s: seconds by which the lag may exceed that of the worst peer.
        error: bound on the probability of calling a release worse that makes no more dead letters or failures.
    """

    stable_s: float
    events: int
    ready_s: float
    lag_s: float
    error: float


class Judge:
    """Compares the instances of a release with the others. Call `look` about once a second.

    Args:
        rules: how.
        release: the new one.
    """

    def __init__(self, rules: JudgeRules, release: str) -> None:
        self.damage = Outcomes()
        """Events that new instances processed, and those that became dead letters or failed."""
        self._partitions = self._all_partitions = 0
        """The most that new instances, and all together, were seen with."""
        self._rules = rules
        self._release = release
        self._accounts: dict[tuple[str, str], InstanceAccount] = {}
        """Name and release of an instance to what it did."""
        self._unready_since_s: dict[str, float] = {}
        self._dead_letters = SequentialTest(rules.error / 2)
        self._failures = SequentialTest(rules.error / 2)
        self._better = SequentialTest(rules.error)
        self._in_a_row: Counter[str] = Counter()
        self._stable_since_s: float | None = None
        self._worse = ""

    def look(self, readings: Sequence[InstanceReading], now_s: float) -> ReleaseJudgement:
        """Take in one reading of every instance of the service, and judge all so far. Worse stays worse.

        Args:
            readings: of all instances at one time.
            now_s: monotonic time.
        """
        new = [reading for reading in readings if reading.release == self._release]
        peers = [reading for reading in readings if reading.release != self._release and reading.ready]
        problems = [
            *self._restarted(new, peers),
            *self._unready(new, peers, now_s),
            *self._failing(self._grown(new, now_s), self._grown(peers, now_s)),
            *self._persisting(new, peers, now_s),
        ]
        self._worse = self._worse or "; ".join(problems)
        mine = sum(reading.partitions for reading in new)
        self._partitions = max(self._partitions, mine)
        self._all_partitions = max(self._all_partitions, mine + sum(peer.partitions for peer in peers))
        stable = bool(new) and not self._unready_since_s
        if not stable:
            self._stable_since_s = None
        elif self._stable_since_s is None:  # what an instance needs to start does not count
            self._stable_since_s = now_s
            for account in self._accounts.values():
                account.start_period(now_s)
        return self._judgement(new, peers, now_s)

    @property
    def damage_text(self) -> str:
        """What the new release had in hand, for people."""
        return (
            f"it processed {self.damage.events:,} events and failed {self.damage.failures:,} of them, "
            f"and was seen with at most {self._partitions} of {self._all_partitions} partitions"
        )

    def start_period(self) -> None:
        """More instances were replaced: the stable time begins anew once all are ready."""
        self._stable_since_s = None
        self._in_a_row.clear()

    def _judgement(
        self, new: Sequence[InstanceReading], peers: Sequence[InstanceReading], now_s: float
    ) -> ReleaseJudgement:
        if self._worse:
            return ReleaseJudgement(ReleaseComparison.WORSE, self._worse)
        if self._stable_since_s is None:
            waiting = ", ".join(sorted(self._unready_since_s)) or "an instance of the release"
            return ReleaseJudgement(ReleaseComparison.TOO_LITTLE, f"{waiting} is not ready yet")
        if now_s - self._stable_since_s < self._rules.stable_s:
            reason = (
                f"no instance was worse so far; the stable time of {self._rules.stable_s:.0f} s is not over"
            )
            return ReleaseJudgement(ReleaseComparison.TOO_LITTLE, reason)
        for who, ones in (("the new release", new), ("the release before", peers)):
            events = sum(self._accounts[instance.name, instance.release].events for instance in ones)
            if ones and events < self._rules.events:
                return ReleaseJudgement(
                    ReleaseComparison.TOO_LITTLE,
                    f"{who} has processed fewer than {self._rules.events:,} events",
                )
        if self._better.worse:
            return ReleaseJudgement(
                ReleaseComparison.BETTER, "fewer dead letters or failures than the release before"
            )
        return ReleaseJudgement(
            ReleaseComparison.EQUAL, f"{self.damage.events:,} events, and no figure is worse"
        )

    def _grown(self, readings: Sequence[InstanceReading], now_s: float) -> Growth:
        """What these instances did since the last look, together."""
        total = Growth()
        for reading in readings:
            key = reading.name, reading.release
            if key not in self._accounts:
                self._accounts[key] = InstanceAccount(reading, now_s)
            total += self._accounts[key].add(reading)
        return total

    def _restarted(self, new: Sequence[InstanceReading], peers: Sequence[InstanceReading]) -> Iterator[str]:
        bound = max([_RESTARTS, *(peer.restarts for peer in peers)])
        yield from (
            f"{reading.name} ended {reading.restarts} times by itself"
            for reading in new
            if reading.restarts > bound
        )

    def _unready(
        self, new: Sequence[InstanceReading], peers: Sequence[InstanceReading], now_s: float
    ) -> Iterator[str]:
        unready = {reading.name for reading in new if not reading.ready}
        self._unready_since_s = {name: self._unready_since_s.get(name, now_s) for name in sorted(unready)}
        for name, since_s in self._unready_since_s.items():
            if now_s - since_s > self._rules.ready_s:
                yield f"{name} was not ready for {self._rules.ready_s:.0f} s"
        slowest_s = max(
            (peer.ready_after_s for peer in peers if peer.ready_after_s is not None), default=None
        )
        for reading in new:
            if slowest_s is None or reading.ready_after_s is None:
                continue
            if reading.ready_after_s > _READY_FACTOR * slowest_s + _READY_ALLOWANCE_S:
                yield f"{reading.name} was ready after {reading.ready_after_s:.0f} s, its peers after {slowest_s:.0f} s"

    def _failing(self, new: Growth, peers: Growth) -> Iterator[str]:
        failed = new.dead_letters + new.failures
        self.damage += new.outcomes(failed)
        self._better.look(peers.outcomes(peers.dead_letters + peers.failures), new.outcomes(failed))
        for kind_of_failure, test, of_new, of_peers in (
            ("dead letters", self._dead_letters, new.dead_letters, peers.dead_letters),
            ("failed deliveries", self._failures, new.failures, peers.failures),
        ):
            if test.look(new.outcomes(of_new), peers.outcomes(of_peers)):
                mine, theirs = test.candidate, test.baseline
                yield (
                    f"{kind_of_failure}: {mine.failures:,} of {mine.events:,} events, "
                    f"the release before {theirs.failures:,} of {theirs.events:,}"
                )

    def _persisting(
        self, new: Sequence[InstanceReading], peers: Sequence[InstanceReading], now_s: float
    ) -> Iterator[str]:
        problems: dict[str, str] = {}
        for reading in new if peers else ():
            problems |= (
                self._lagging(reading, peers)
                | self._large(reading, peers)
                | self._slow(reading, peers, now_s)
            )
        self._in_a_row = Counter({key: self._in_a_row[key] + 1 for key in problems})
        yield from (text for key, text in problems.items() if self._in_a_row[key] >= _IN_A_ROW)

    def _lagging(self, reading: InstanceReading, peers: Sequence[InstanceReading]) -> dict[str, str]:
        lags_s = [peer.lag_s for peer in peers if peer.lag_s is not None]
        if reading.lag_s is None or not lags_s or reading.lag_s <= max(lags_s) + self._rules.lag_s:
            return {}
        text = f"{reading.name} is {reading.lag_s:.0f} s behind, its peers {max(lags_s):.0f} s"
        return {f"lag {reading.name}": text}

    def _large(self, reading: InstanceReading, peers: Sequence[InstanceReading]) -> dict[str, str]:
        most = max(peer.rss_bytes for peer in peers)
        if reading.rss_bytes > _MEMORY_FACTOR * most + _MEMORY_ALLOWANCE_BYTES:
            used_mib, most_mib = reading.rss_bytes / 2**20, most / 2**20
            text = f"{reading.name} uses {used_mib:.0f} MiB of memory, its peers {most_mib:.0f} MiB"
            return {f"memory {reading.name}": text}
        grown = self._accounts[reading.name, reading.release].grown_bytes
        of_peers = max(self._accounts[peer.name, peer.release].grown_bytes for peer in peers)
        # A new process fills its caches: it may grow until it is as large as its peers.
        if reading.rss_bytes <= most or grown <= max(0, of_peers) + _GROWTH_ALLOWANCE_BYTES:
            return {}
        text = f"the memory of {reading.name} grew by {grown / 2**20:.0f} MiB to {reading.rss_bytes / 2**20:.0f} MiB"
        return {f"memory {reading.name}": f"{text}, its peers use at most {most / 2**20:.0f} MiB of memory"}

    def _slow(
        self, reading: InstanceReading, peers: Sequence[InstanceReading], now_s: float
    ) -> dict[str, str]:
        accounts = [self._accounts[peer.name, peer.release] for peer in peers]
        mine = self._accounts[reading.name, reading.release]
        measured = [account for account in accounts if account.events >= self._rules.events]
        if self._stable_since_s is None or mine.events < self._rules.events or not measured:
            return {}
        used_s, most_s = (
            mine.cpu_an_event_s(now_s),
            max(account.cpu_an_event_s(now_s) for account in measured),
        )
        if used_s <= CPU_FACTOR * most_s:
            return {}
        text = f"{reading.name} uses {used_s * 1000:.2f} ms of CPU an event, its peers {most_s * 1000:.2f} ms"
        return {f"CPU {reading.name}": text}
