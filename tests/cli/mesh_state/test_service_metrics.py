import socket

from hifi_cli.mesh_state import service_metrics
from hifi_cli.mesh_state.service_metrics import ACCEPTED, ServiceCounters, _read, per_second

PAGE = """\
# TYPE hifi_ingest_accepted_events counter
hifi_ingest_accepted_events_total{pipe="a"} 3.0
hifi_ingest_accepted_events_total{pipe="b"} 4.0
hifi_ingest_accepted_events_created{pipe="b"} 1.7e9
# TYPE hifi_outcomes counter
hifi_egest_outcomes_total{pipe="a",destination="x",outcome="delivered"} 5.0
hifi_egest_outcomes_total{pipe="a",destination="x",outcome="retry"} 2.0
# TYPE other counter
other_total 9.0
"""


def test_counters_are_summed_over_pipes():
    counts = _read(PAGE)
    assert counts.totals == {ACCEPTED: 7.0, service_metrics.OUTCOMES: 7.0}
    assert counts.delivered == 5.0


def test_a_rate_needs_two_readings_of_the_same_process():
    assert per_second(ServiceCounters(10, {"n": 100}), ServiceCounters(12, {"n": 300}), "n") == 100
    assert per_second(ServiceCounters(10), ServiceCounters(12, {"n": 300}), "n") == 150
    assert per_second(None, ServiceCounters(12, {"n": 300}), "n") is None
    assert per_second(ServiceCounters(10, {"n": 500}), ServiceCounters(12, {"n": 3}), "n") is None, (
        "it was restarted"
    )


async def test_a_service_that_does_not_answer_has_no_counts():
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        assert await service_metrics.read_counters(closed.getsockname()[1]) is None
