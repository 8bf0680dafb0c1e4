"""A quota of a pipe or key is answered with 429 and holds over all processes; real HTTP, real Kafka."""

import urllib.request
from pathlib import Path

import orjson
import pytest
from tests.support.ingest.ingest_harness import KEY, Ingest, ingest, new_stream, pipe
from tests.support.ingest.sender import Sender, told, until

from hifi.pipe.registry import publish, read_registry
from hifi.pipe.revision import RateCap
from hifi.pipe.rollout import change_cap
from hifi.pipe.secret import Quota, WriteKey
from hifi.runtime.clock import monotonic_s


def refused(instance: Ingest, labels: str) -> float:
    """The number of requests that were refused because of a quota, by the metrics."""
    with urllib.request.urlopen(f"http://127.0.0.1:{instance.admin}/metrics", timeout=5) as answer:
        lines = answer.read().decode().splitlines()
    name = f"hifi_ingest_quota_refused_requests_total{{{labels}}}"
    return sum(float(line.split()[-1]) for line in lines if line.startswith(name))


async def test_a_quota_holds_over_two_processes_and_touches_no_other_pipe(kafka: str, tmp_path: Path) -> None:
    limited_pipe = pipe(quota={"events": "400/s"})
    stream = await new_stream(kafka, limited_pipe, pipe("orders", "orders-key"))
    with (
        ingest(kafka, stream.name, tmp_path / "a") as first_instance,
        ingest(kafka, stream.name, tmp_path / "b") as second_instance,
    ):
        fast_sender, slow_sender = Sender(first_instance, 20), Sender(second_instance, 5)
        other_sender = Sender(first_instance, 5, pipe_name="orders", key="orders-key")
        async with (
            fast_sender.sending(connections=4, pause_s=0.02),
            slow_sender.sending(connections=2, pause_s=0.05),
            other_sender.sending(connections=1, pause_s=0.05),
        ):
            settled_s = monotonic_s() + 6
            await until(lambda: monotonic_s() >= settled_s)
            accepted_before, start_s = len(fast_sender.accepted) + len(slow_sender.accepted), monotonic_s()
            await until(lambda: monotonic_s() >= start_s + 10)
            per_s = (len(fast_sender.accepted) + len(slow_sender.accepted) - accepted_before) / (
                monotonic_s() - start_s
            )
        assert per_s == pytest.approx(400, rel=0.2)
        assert set(fast_sender.statuses) == set(slow_sender.statuses) == {202, 429}
        assert set(other_sender.statuses) == {202}
        retry_after_s, problem = fast_sender.refusals[-1]
        assert int(retry_after_s or 0) >= 1
        assert problem["quota"] == {"of": "pipe", "unit": "events", "per_second": 400}
        labels = 'of="pipe",pipe="flights",unit="events"'
        assert refused(first_instance, labels) == fast_sender.statuses[429]
        assert refused(second_instance, labels) == slow_sender.statuses[429]
        assert first_instance.stop() == second_instance.stop() == 0
    reports = [orjson.loads(record.value) for record in await stream.accepted()]
    reported_refusals = sum(report["refused"].get("flights", 0) for report in reports)
    assert reported_refusals == fast_sender.statuses[429] + slow_sender.statuses[429]
    assert await told(stream) == fast_sender.statuses + slow_sender.statuses + other_sender.statuses
    raw = [dict(record.headers)["ce_id"].decode() for record in await stream.raw()]
    assert sorted(raw) == sorted(fast_sender.accepted + slow_sender.accepted + other_sender.accepted)


async def test_a_key_above_its_bytes_is_refused_and_the_pipes_other_key_is_not(
    kafka: str, tmp_path: Path
) -> None:
    flights = pipe()
    limited_key = flights.source.keys[0].model_copy(update={"quota": Quota(bytes=1000)})
    second_key = WriteKey(sha256=pipe(key="second").source.keys[0].sha256)
    source = flights.source.model_copy(update={"keys": [limited_key, second_key]})
    flights = flights.model_copy(update={"source": source})
    stream = await new_stream(kafka, flights)
    with ingest(kafka, stream.name, tmp_path / "log") as instance:
        first_sender, second_sender = (
            Sender(instance, 1, pad=5000),
            Sender(instance, 1, pad=5000, key="second"),
        )
        async with first_sender.sending(connections=1), second_sender.sending(connections=1):
            await until(lambda: first_sender.statuses[429] > 3 and second_sender.statuses[202] > 3)
        assert first_sender.statuses[202] >= 1
        assert set(second_sender.statuses) == {202}
        assert first_sender.refusals[0][1]["quota"] == {"of": "key", "unit": "bytes", "per_second": 1000}
        assert "a-write-key" not in str(first_sender.refusals), KEY
        assert refused(instance, 'of="key",pipe="flights",unit="bytes"') == first_sender.statuses[429]


async def test_a_new_pipe_is_refused_above_its_cap_which_can_rise(kafka: str, tmp_path: Path) -> None:
    stream = await new_stream(kafka, pipe())

    async def set_cap(cap: RateCap | None) -> None:
        registry = await read_registry(kafka, stream.topics)
        await publish(kafka, stream.topics, change_cap(registry, "flights", cap))

    await set_cap(RateCap(share=100, events_per_s=1))
    with ingest(kafka, stream.name, tmp_path / "a") as instance:
        sender = Sender(instance, 5)
        async with sender.sending(connections=1, pause_s=0.02):
            await until(lambda: sender.statuses[429] > 5)
            retry_after_s, problem = sender.refusals[-1]
            assert int(retry_after_s or 0) >= 1
            assert problem["quota"] == {"of": "new pipe", "unit": "events", "per_second": 1}
            assert (
                "this new pipe, which rises while the pipe is stable, is 1 events per second"
                in problem["detail"]
            )
            await set_cap(None)
            await until(lambda: sender.statuses[202] > 50)
        assert refused(instance, 'of="new pipe",pipe="flights",unit="events"') == sender.statuses[429]
