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
    """The comparison of the new release with the one before."""

    BETTER = "better"
    EQUAL = "equal"
    WORSE = "worse"
    TOO_LITTLE = "too little to judge"


@dataclass(frozen=True, slots=True)
class ReleaseJudgement:
    """A comparison, with the reason for people."""

    comparison: ReleaseComparison
    reason: str


@dataclass(frozen=True, slots=True)
class JudgeRules:
    """The rules by which instances are compared.

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
        rules: of the comparison.
        release: the new one.
    """

    def __init__(self, rules: JudgeRules, release: str) -> None:
        self.damage = Outcomes()
        """Events that new instances processed, and those that became dead letters or failed."""
        self._partitions = self._all_partitions = 0
        """The largest number of partitions that new instances had, and all instances together."""
        self._rules = rules
        self._release = release
        self._accounts: dict[tuple[str, str], InstanceAccount] = {}
        """Name and release of an instance to its account."""
        self._unready_since_s: dict[str, float] = {}
        self._dead_letters = SequentialTest(rules.error / 2)
        self._failures = SequentialTest(rules.error / 2)
        self._better = SequentialTest(rules.error)
        self._bad_looks: Counter[str] = Counter()
        self._stable_since_s: float | None = None
        self._worse_reason = ""

    def look(self, instances: Sequence[InstanceReading], now_s: float) -> ReleaseJudgement:
        """Take in one reading of every instance of the service, and judge all so far. Worse stays worse.

        Args:
            instances: of all instances at one time.
            now_s: monotonic time.
        """
        new_instances = [instance for instance in instances if instance.release == self._release]
        peers = [instance for instance in instances if instance.release != self._release and instance.ready]
        problems = [
            *self._restarted(new_instances, peers),
            *self._unready(new_instances, peers, now_s),
            *self._failing(self._total_growth(new_instances, now_s), self._total_growth(peers, now_s)),
            *self._persisting(new_instances, peers),
        ]
        self._worse_reason = self._worse_reason or "; ".join(problems)
        own_partitions = sum(instance.partitions for instance in new_instances)
        self._partitions = max(self._partitions, own_partitions)
        self._all_partitions = max(
            self._all_partitions, own_partitions + sum(peer.partitions for peer in peers)
        )
        is_stable = bool(new_instances) and not self._unready_since_s
        if not is_stable:
            self._stable_since_s = None
        elif self._stable_since_s is None:  # what an instance needs to start does not count
            self._stable_since_s = now_s
            for account in self._accounts.values():
                account.start_period()
        return self._judgement(new_instances, peers, now_s)

    @property
    def damage_text(self) -> str:
        """The events and partitions that the new release had, for people."""
        return (
            f"it processed {self.damage.events:,} events and failed {self.damage.failures:,} of them, "
            f"and was seen with at most {self._partitions} of {self._all_partitions} partitions"
        )

    def start_period(self) -> None:
        """More instances were replaced: the stable time begins anew once all are ready."""
        self._stable_since_s = None
        self._bad_looks.clear()

    def _judgement(
        self, new_instances: Sequence[InstanceReading], peers: Sequence[InstanceReading], now_s: float
    ) -> ReleaseJudgement:
        if self._worse_reason:
            return ReleaseJudgement(ReleaseComparison.WORSE, self._worse_reason)
        if missing := self._missing(new_instances, peers, now_s):
            return ReleaseJudgement(ReleaseComparison.TOO_LITTLE, missing)
        if self._better.worse:
            return ReleaseJudgement(
                ReleaseComparison.BETTER, "fewer dead letters or failures than the release before"
            )
        return ReleaseJudgement(
            ReleaseComparison.EQUAL, f"{self.damage.events:,} events, and no figure is worse"
        )

    def _missing(
        self, new_instances: Sequence[InstanceReading], peers: Sequence[InstanceReading], now_s: float
    ) -> str:
        """The evidence that is missing before a release that is not worse counts as equal or better; empty: none."""
        if self._stable_since_s is None:
            waiting_names = ", ".join(sorted(self._unready_since_s)) or "an instance of the release"
            return f"{waiting_names} is not ready yet"
        if now_s - self._stable_since_s < self._rules.stable_s:
            return (
                f"no instance was worse so far; the stable time of {self._rules.stable_s:.0f} s is not over"
            )
        unmeasured_names = [instance.name for instance in (*new_instances, *peers) if instance.cpu_s is None]
        if unmeasured_names:
            return f"CPU time and memory are unknown of {', '.join(sorted(unmeasured_names))}"
        for release_text, instances in (("the new release", new_instances), ("the release before", peers)):
            events = sum(self._accounts[instance.name, instance.release].events for instance in instances)
            if instances and events < self._rules.events:
                return f"{release_text} has processed fewer than {self._rules.events:,} events"
        return ""

    def _total_growth(self, instances: Sequence[InstanceReading], now_s: float) -> Growth:
        """The growth of all these instances together since the last look."""
        total = Growth()
        for instance in instances:
            key = instance.name, instance.release
            if key not in self._accounts:
                self._accounts[key] = InstanceAccount(instance, now_s)
            total += self._accounts[key].add(instance, now_s)
        return total

    def _restarted(
        self, new_instances: Sequence[InstanceReading], peers: Sequence[InstanceReading]
    ) -> Iterator[str]:
        restart_limit = max([_RESTARTS, *(peer.restarts for peer in peers)])
        yield from (
            f"{instance.name} ended {instance.restarts} times by itself"
            for instance in new_instances
            if instance.restarts > restart_limit
        )

    def _unready(
        self, new_instances: Sequence[InstanceReading], peers: Sequence[InstanceReading], now_s: float
    ) -> Iterator[str]:
        unready_names = {instance.name for instance in new_instances if not instance.ready}
        self._unready_since_s = {
            name: self._unready_since_s.get(name, now_s) for name in sorted(unready_names)
        }
        for name, since_s in self._unready_since_s.items():
            if now_s - since_s > self._rules.ready_s:
                yield f"{name} was not ready for {self._rules.ready_s:.0f} s"
        slowest_s = max(
            (peer.ready_after_s for peer in peers if peer.ready_after_s is not None), default=None
        )
        for instance in new_instances:
            if slowest_s is None or instance.ready_after_s is None:
                continue
            if instance.ready_after_s > _READY_FACTOR * slowest_s + _READY_ALLOWANCE_S:
                ready_text = (
                    f"was ready after {instance.ready_after_s:.0f} s, its peers after {slowest_s:.0f} s"
                )
                yield f"{instance.name} {ready_text}"

    def _failing(self, new_growth: Growth, peer_growth: Growth) -> Iterator[str]:
        failed_count = new_growth.dead_letters + new_growth.failures
        self.damage += new_growth.outcomes(failed_count)
        self._better.look(
            peer_growth.outcomes(peer_growth.dead_letters + peer_growth.failures),
            new_growth.outcomes(failed_count),
        )
        for kind_of_failure, test, new_failures, peer_failures in (
            ("dead letters", self._dead_letters, new_growth.dead_letters, peer_growth.dead_letters),
            ("failed deliveries", self._failures, new_growth.failures, peer_growth.failures),
        ):
            if test.look(new_growth.outcomes(new_failures), peer_growth.outcomes(peer_failures)):
                candidate, baseline = test.candidate, test.baseline
                yield (
                    f"{kind_of_failure}: {candidate.failures:,} of {candidate.events:,} events, "
                    f"the release before {baseline.failures:,} of {baseline.events:,}"
                )

    def _persisting(
        self, new_instances: Sequence[InstanceReading], peers: Sequence[InstanceReading]
    ) -> Iterator[str]:
        problems: dict[str, str] = {}
        for instance in new_instances if peers else ():
            problems |= (
                self._lagging(instance, peers) | self._large(instance, peers) | self._slow(instance, peers)
            )
        self._bad_looks = Counter({key: self._bad_looks[key] + 1 for key in problems})
        yield from (text for key, text in problems.items() if self._bad_looks[key] >= _IN_A_ROW)

    def _lagging(self, instance: InstanceReading, peers: Sequence[InstanceReading]) -> dict[str, str]:
        lags_s = [peer.lag_s for peer in peers if peer.lag_s is not None]
        if instance.lag_s is None or not lags_s or instance.lag_s <= max(lags_s) + self._rules.lag_s:
            return {}
        text = f"{instance.name} is {instance.lag_s:.0f} s behind, its peers {max(lags_s):.0f} s"
        return {f"lag {instance.name}": text}

    def _large(self, instance: InstanceReading, peers: Sequence[InstanceReading]) -> dict[str, str]:
        peer_sizes_bytes = [peer.rss_bytes for peer in peers if peer.rss_bytes is not None]
        if instance.rss_bytes is None or not peer_sizes_bytes:
            return {}
        largest_bytes = max(peer_sizes_bytes)
        if instance.rss_bytes > _MEMORY_FACTOR * largest_bytes + _MEMORY_ALLOWANCE_BYTES:
            used_mib, largest_mib = instance.rss_bytes / 2**20, largest_bytes / 2**20
            text = f"{instance.name} uses {used_mib:.0f} MiB of memory, its peers {largest_mib:.0f} MiB"
            return {f"memory {instance.name}": text}
        growth_bytes = self._accounts[instance.name, instance.release].grown_bytes
        peer_growth_bytes = max(self._accounts[peer.name, peer.release].grown_bytes for peer in peers)
        # A new process fills its caches: it may grow until it is as large as its peers.
        if (
            instance.rss_bytes <= largest_bytes
            or growth_bytes <= max(0, peer_growth_bytes) + _GROWTH_ALLOWANCE_BYTES
        ):
            return {}
        growth_mib, used_mib, largest_mib = (
            size_bytes / 2**20 for size_bytes in (growth_bytes, instance.rss_bytes, largest_bytes)
        )
        text = f"the memory of {instance.name} grew by {growth_mib:.0f} MiB to {used_mib:.0f} MiB"
        return {f"memory {instance.name}": f"{text}, its peers use at most {largest_mib:.0f} MiB of memory"}

    def _slow(self, instance: InstanceReading, peers: Sequence[InstanceReading]) -> dict[str, str]:
        accounts = [self._accounts[peer.name, peer.release] for peer in peers]
        own_account = self._accounts[instance.name, instance.release]
        measured_accounts = [account for account in accounts if account.measured_events >= self._rules.events]
        is_measured = own_account.measured_events >= self._rules.events and measured_accounts
        if self._stable_since_s is None or not is_measured:
            return {}
        used_s, highest_s = (
            own_account.cpu_an_event_s(),
            max(account.cpu_an_event_s() for account in measured_accounts),
        )
        if used_s <= CPU_FACTOR * highest_s:
            return {}
        text = f"{instance.name} uses {used_s * 1000:.2f} ms of CPU an event, its peers {highest_s * 1000:.2f} ms"
        return {f"CPU {instance.name}": text}
