"""The Grafana dashboard asks for metrics that there are, by labels that they have."""

import pytest
from prometheus_client import REGISTRY
from prometheus_client.metrics import MetricWrapperBase
from tests.support.observe.dashboard import labels, metrics, queries

import hifi.runtime.metrics
import hifi_observe.metrics

OF_PROMETHEUS = {"le", "job", "instance"}
ENDS = {"counter": ["_total"], "histogram": ["_bucket", "_sum", "_count"]}


def declared_metrics() -> dict[str, set[str]]:
    """Name as on /metrics to its labels."""
    metrics = [*vars(hifi.runtime.metrics).values(), *vars(hifi_observe.metrics).values()]
    labelled = {
        metric._name: set(metric._labelnames) for metric in metrics if isinstance(metric, MetricWrapperBase)
    }
    endings = {family.name: ENDS.get(family.type, [""]) for family in REGISTRY.collect()}
    return {
        name + suffix: labelled.get(name, set()) for name, suffixes in endings.items() for suffix in suffixes
    }


def test_every_query_names_metrics_that_exist_and_their_labels() -> None:
    declared_labels = declared_metrics()
    for query, legend in queries():
        assert metrics(query), query
        for name in metrics(query):
            assert name in declared_labels, query
            assert labels(query, legend) <= declared_labels[name] | OF_PROMETHEUS, query


@pytest.mark.parametrize(
    "prefix",
    [
        "hifi_observe_minute",
        "hifi_observe_alarms",
        "hifi_observe_settled",
        "hifi_observe_step",
        "hifi_state",
        "hifi_view",
    ],
)
def test_every_metric_of_minutes_alarms_watermarks_steps_and_views_is_shown(prefix: str) -> None:
    """Of a histogram its buckets are enough."""
    shown_metrics = {name for query, _ in queries() for name in metrics(query)}
    declared_names = {
        name
        for name in declared_metrics()
        if name.startswith(prefix) and not name.endswith(("_sum", "_count"))
    }
    assert declared_names
    assert declared_names <= shown_metrics
