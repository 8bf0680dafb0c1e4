"""A quota holds over all processes, wherever its senders are connected, and what is not used up is not refused."""

import pytest

from hifi.pipe.secret import Quota
from hifi_ingest.admission.quotas import KeyQuota, QuotaExceeded, Quotas

STEP_S = 0.01
PERIOD_S = 1.0


class Processes:
    """Processes of ingest that hear each other's reports a second later."""

    def __init__(self, count: int, quota: Quota) -> None:
        self.quotas = [Quotas() for _ in range(count)]
        self.quota = quota
        self.now_s = 1000.0
        self.reports: list[dict[str, float]] = [{} for _ in range(count)]
        self.next_s = self.now_s + PERIOD_S

    def run(self, offered_per_s: list[int], seconds: float, batch: int = 1) -> tuple[list[float], int]:
        """Events per second that each accepted, and requests refused."""
        accepted_counts, refused_count = [0.0] * len(self.quotas), 0
        due_events = [0.0] * len(self.quotas)
        end_s = self.now_s + seconds
        while self.now_s < end_s:
            self.now_s += STEP_S
            for index, quotas in enumerate(self.quotas):
                due_events[index] += offered_per_s[index] * STEP_S
                while due_events[index] >= batch:
                    due_events[index] -= batch
                    limits = quotas.of("a", self.quota, None, self.now_s)
                    try:
                        quotas.check("a", limits, self.now_s)
                        quotas.take("a", limits, batch, batch * 100, self.now_s)
                        accepted_counts[index] += batch
                    except QuotaExceeded:
                        refused_count += 1
            if self.now_s >= self.next_s:
                self.next_s += PERIOD_S
                self._exchange()
        return [count / seconds for count in accepted_counts], refused_count

    def _exchange(self) -> None:
        for index, quotas in enumerate(self.quotas):
            for other_index, report in enumerate(self.reports):
                if other_index != index:
                    quotas.hear(str(other_index), report, self.now_s)
        self.reports = [quotas.report(self.now_s) for quotas in self.quotas]


@pytest.mark.parametrize("offered", [[600, 600, 600, 600], [2000, 10, 0, 300], [5000, 0, 0, 0]])
@pytest.mark.parametrize("batch", [1, 25])
@pytest.mark.parametrize("quota", [Quota(events=400), Quota(bytes=40_000)], ids=["events", "bytes"])
@pytest.mark.more
def test_all_processes_together_accept_the_quota_however_its_senders_are_spread(
    offered: list[int], batch: int, quota: Quota
) -> None:
    processes = Processes(4, quota)
    processes.run(offered, 5, batch)
    accepted_per_s, _ = processes.run(offered, 20, batch)
    assert sum(accepted_per_s) == pytest.approx(400, rel=0.1)


def test_nothing_is_refused_while_all_offer_less_than_the_quota() -> None:
    processes = Processes(3, Quota(events=400))
    assert processes.run([380, 5, 5], 20)[1] == 0
    refused_count = processes.run([5, 5, 380], 20)[1]
    assert refused_count <= 2 * 380, (
        "for at most two seconds, until the processes have heard that senders moved"
    )
    assert processes.run([5, 5, 380], 20)[1] == 0


def test_the_share_of_a_process_that_ended_goes_to_the_others() -> None:
    processes = Processes(2, Quota(events=400))
    processes.run([1000, 1000], 5)
    processes.quotas.pop()
    processes.run([1000], 8)
    assert processes.run([1000], 10)[0] == [pytest.approx(400, rel=0.05)]


def test_a_refusal_names_the_quota_and_how_long_to_wait() -> None:
    quotas = Quotas()
    key = KeyQuota("0a1b2c3d", Quota(bytes=1000))
    limits = quotas.of("a", Quota(events=10), key, 0.0)
    quotas.take("a", limits, 1, 4000, 0.0)
    with pytest.raises(QuotaExceeded) as caught:
        quotas.check("a", limits, 0.0)
    error = caught.value
    assert (error.status, dict(error.headers)) == (429, {"retry-after": "3"})
    assert error.members == {"quota": {"of": "key", "unit": "bytes", "per_second": 1000}}
    assert "this write key is 1000 bytes per second" in error.detail
    quotas.take("a", quotas.of("a", Quota(events=10), None, 0.0), 4, 4000, 0.0)


def test_pipes_without_a_quota_have_the_default_and_without_one_no_limit() -> None:
    assert Quotas().of("a", None, None, 0.0) == ()
    quotas = Quotas(10)
    limits = quotas.of("a", None, None, 0.0)
    quotas.take("a", limits, 11, 1, 0.0)
    with pytest.raises(QuotaExceeded):
        quotas.take("a", limits, 1, 1, 0.0)
    (limit,) = quotas.of("a", Quota(events=1000), None, 0.0)
    assert limit.limit_per_s == 1000
    assert limit.wait_s(0.0) == 0


def test_quotas_that_nobody_uses_are_forgotten() -> None:
    quotas = Quotas()
    quotas.of("a", Quota(events=10), None, 0.0)
    quotas.report(30.0)
    assert quotas.used
    quotas.report(61.0)
    assert not quotas.used
