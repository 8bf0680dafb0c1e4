"""Reading the Grafana dashboard: the metrics that its queries name, with the labels that they use."""

import re
from collections.abc import Iterator
from pathlib import Path

import orjson

FILE = Path(__file__).parents[3] / "docs" / "grafana" / "hifi.json"
_METRIC = re.compile(r"\b(?:hifi|process)_[a-z0-9_]+")
_BY = re.compile(r"\bby \(([^)]*)\)")
_CHOSEN = re.compile(r"([a-z_]+)=~?\"")
_SHOWN = re.compile(r"\{\{([a-z_]+)\}\}")


def queries() -> Iterator[tuple[str, str]]:
    """Each query with its legend."""
    board = orjson.loads(FILE.read_bytes())
    for panel in board["panels"]:
        for target in panel.get("targets", []):
            yield target["expr"], target["legendFormat"]
    for variable in board["templating"]["list"]:
        if variable["type"] == "query":
            yield variable["query"]["query"], ""


def metrics(query: str) -> set[str]:
    """Names as they are on /metrics."""
    return set(_METRIC.findall(query))


def labels(query: str, legend: str) -> set[str]:
    """Labels that a query groups, chooses or shows by."""
    grouped = {name.strip() for names in _BY.findall(query) for name in names.split(",")}
    return grouped | set(_CHOSEN.findall(query)) | set(_SHOWN.findall(legend))
