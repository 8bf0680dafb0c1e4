"""KEDA on a real Kubernetes node scales egest of the chart by its lag, and no event is lost."""

import statistics
import time
from pathlib import Path
from typing import Final

import pytest
from tests.support.helm.flights import Flights
from tests.support.helm.keda import DEPLOYMENTS, NAMESPACE, install_keda
from tests.support.helm.release import RELEASE, Release, set_values
from tests.support.kubernetes.node import Node, until

pytestmark = [pytest.mark.more, pytest.mark.timeout(5400)]

RATE: Final = 100
"""Of the demo, events a second."""
EVENTS: Final = 30_000
ALONE_S: Final = 60
"""How long egest has one instance, seconds."""
SETTLED_S: Final = 20
"""Time after the first event, and after growth, that counts as neither before nor after, seconds."""
DOWN_AFTER_S: Final = 15
EGEST: Final = f"scaledobject/{RELEASE}-hifi-egest"
PREFIX: Final = "keda-hpa-"
"""Of the names of KEDA's autoscalers."""
SCALED: Final = (
    "autoscaling.enabled=true",
    "autoscaling.keda.enabled=true",
    "autoscaling.cpu=2000m",
    f"autoscaling.downAfterSeconds={DOWN_AFTER_S}",
    *(f"services.{service}.min=1" for service in ("ingest", "normalize", "egest", "retrier")),
    *(f"services.{service}.max=1" for service in ("ingest", "normalize", "retrier")),
    "services.egest.max=2",
)


@pytest.fixture(scope="module")
def cluster(cluster: Node) -> Node:
    """The node with KEDA."""
    install_keda(cluster)
    return cluster


def wait_until_active(flights: Release) -> None:
    """Wait until KEDA's autoscaler of egest knows CPU and lag."""
    until(lambda: flights.has_condition(EGEST, "Ready"), "KEDA has made the autoscaler of egest")
    until(lambda: flights.has_metric("egest", PREFIX), "CPU and lag of egest are known")


def scale_keda(flights: Release, replicas: int) -> None:
    """Give KEDA's operator and metrics server `replicas` instances each."""
    for deployment in DEPLOYMENTS:
        flights.node.ask("-n", NAMESPACE, "scale", "deployment", deployment, f"--replicas={replicas}")


def test_egest_follows_its_lag_and_stays_while_it_is_unknown(flights: Release, tmp_path: Path) -> None:
    flights.deploy(*set_values(*SCALED, "autoscaling.keda.lag=1000000"))
    wait_until_active(flights)
    sent_flights = Flights.write(tmp_path / "events.ndjson", EVENTS)
    sending = flights.send(sent_flights, RATE)
    until(lambda: sum(flights.counts().values()) > ALONE_S * RATE, "events arrive with one instance")
    assert flights.ready("egest") == 1
    changed_ns = time.time_ns()
    flights.deploy(*set_values(*SCALED, "autoscaling.keda.lag=1"))
    until(lambda: flights.ready("egest") == 2, "egest has grown")
    grown_ns = time.time_ns()
    scale_keda(flights, 0)
    until(lambda: not flights.has_metric("egest", PREFIX), "the lag of egest is unknown")
    result = sending.result()
    assert result["accepted"] == EVENTS
    flights.wait_delivered(sent_flights, tmp_path)
    flights.stay("egest", 2, 4 * DOWN_AFTER_S)
    scale_keda(flights, 1)
    flights.deploy(*set_values(*SCALED, "autoscaling.keda.lag=1000000"))
    until(lambda: flights.ready("egest") == 1, "egest has shrunk, once its lag is known again")
    settled_ns = SETTLED_S * 10**9
    periods_ns = {
        "before": (result["began_ns"] + settled_ns, changed_ns),
        "while egest grows": (changed_ns, grown_ns + settled_ns),
        "after": (grown_ns + settled_ns, time.time_ns()),
    }
    lags = sent_flights.lags(tmp_path / "requests.log", result["began_ns"], RATE)
    for name, (first_ns, end_ns) in periods_ns.items():
        lags_s = [lag_s for due_ns, lag_s in lags if first_ns <= due_ns < end_ns]
        p95_ms = statistics.quantiles(lags_s, n=20)[-1] * 1_000
        print(f"{name}: {len(lags_s)} deliveries, p95 {p95_ms:.0f} ms")


def test_a_lag_that_kafka_does_not_tell_holds_the_instances(flights: Release, tmp_path: Path) -> None:
    flights.deploy(*set_values(*SCALED, "autoscaling.keda.lag=1"))
    wait_until_active(flights)
    sending = flights.send(Flights.write(tmp_path / "events.ndjson", EVENTS, first=EVENTS), RATE)
    try:
        until(lambda: len(flights.pods("egest")) == 2, "egest has grown")
        flights.ask("scale", "statefulset", f"{RELEASE}-hifi-kafka", "--replicas=0")
        until(lambda: not flights.has_metric("egest", PREFIX), "the lag of egest is unknown")
        flights.stay("egest", 2, 4 * DOWN_AFTER_S)
    finally:
        sending.process.terminate()  # without Kafka no event is accepted
        sending.process.wait()
