"""Which destinations lose events of a second log of the stream: kind and mode say so; by default they are refused."""

from importlib.metadata import entry_points
from typing import Any

import pytest

from hifi.delivery import installed_kinds, several_logs
from hifi.delivery.installed_kinds import installed_kind
from hifi.delivery.kind import DestinationKind, DestinationWriter, WriterContext
from hifi.delivery.several_logs import refuse_several_logs, require_fit_for_colours, require_usable
from hifi.pipe.installed_kinds import DESTINATIONS
from hifi.pipe.model import Pipe
from hifi.pipe.strict_model import StrictModel
from hifi.runtime.errors import Misconfigured

HTTP = {"name": "web", "url": "http://127.0.0.1:9/"}


def pipe(*destinations: dict[str, Any]) -> Pipe:
    return Pipe.model_validate(
        {"pipe": "orders", "source": {"keys": [{"env": "KEY"}]}, "destinations": list(destinations)}
    )


def destination_of(kind: str, settings: dict[str, Any] | None = None) -> dict[str, Any]:
    return {"name": "rows", "kind": kind, "settings": settings or {}}


def _open(_settings: StrictModel, _context: WriterContext) -> DestinationWriter:
    raise AssertionError


@pytest.fixture
def kinds(monkeypatch: pytest.MonkeyPatch) -> dict[str, DestinationKind[Any]]:
    """Kinds that are installed in this test beside the real ones."""
    added_kinds: dict[str, DestinationKind[Any]] = {}
    for module in (several_logs, installed_kinds):
        monkeypatch.setattr(
            module, "installed_kind", lambda name: added_kinds.get(name) or installed_kind(name)
        )
    return added_kinds


URL = {"env": "URL"}
SETTINGS: dict[str, dict[str, Any]] = {
    "kafka": {"bootstrap": "k:9092", "topic": "out"},
    "objects": {"folder": "/srv/objects"},
    "postgres": {"url": URL, "table": "t", "columns": {"id": "id"}, "key": ["id"]},
    "iceberg": {"warehouse": "/srv/lake", "table": "a.b"},
}


def test_kinds_of_hifi_get_events_of_several_logs() -> None:
    """The contract of destinations shows it, and for Iceberg the tests of lake."""
    assert set(entry_points(group=DESTINATIONS).names) - {"http"} == SETTINGS.keys()
    for name, settings in SETTINGS.items():
        assert refuse_several_logs(pipe(destination_of(name, settings)).destinations[0]) is None, name
    assert refuse_several_logs(pipe(HTTP).destinations[0]) is None


def test_an_iceberg_table_with_a_row_for_each_key_is_refused() -> None:
    upsert = destination_of("iceberg", SETTINGS["iceberg"] | {"mode": "upsert", "key": ["id"]})
    with pytest.raises(Misconfigured, match="orders/rows: with `mode: upsert` two services lake"):
        require_fit_for_colours([pipe(upsert)])


def test_a_kind_that_says_nothing_is_refused_and_one_that_keeps_no_positions_is_not(
    kinds: dict[str, DestinationKind[Any]],
) -> None:
    kinds |= {
        "silent": DestinationKind(StrictModel, _open),
        "open": DestinationKind(StrictModel, _open, several_logs=True),
    }
    require_fit_for_colours([pipe(destination_of("open"), HTTP)])
    with pytest.raises(Misconfigured, match="orders/rows: the kind silent knows an event by its partition"):
        require_fit_for_colours([pipe(HTTP), pipe(HTTP, destination_of("silent"))])


def test_a_kind_that_is_not_installed_is_refused() -> None:
    with pytest.raises(Misconfigured, match="orders/rows: the kind tape is not installed here"):
        require_fit_for_colours([pipe(destination_of("tape"))])


def step(name: str, **kind: Any) -> Pipe:
    source = {"kind": "step", "from": "orders", "key": {"sku": "string"}, **kind}
    return Pipe.model_validate({"pipe": name, "source": source, "destinations": [HTTP]})


def test_steps_whose_results_cannot_be_marked_are_refused() -> None:
    count = {"fields": {"n": "count(*)"}}
    require_fit_for_colours(
        [
            pipe(HTTP),
            step("counts", window={"tumbling": "1m"}, **count),
            step("each", each={"trailing": "1m"}, **count),
        ]
    )
    join = {"join": {"with": "stock", "within": "1m", "fields": {"left": "left"}}}
    with pytest.raises(
        Misconfigured, match=r"(?s)two colours.*once: `first` would pass.*pairs: `join` would miss"
    ):
        require_fit_for_colours([pipe(HTTP), step("once", first="1h"), step("pairs", **join)])


def test_the_message_says_what_to_do(kinds: dict[str, DestinationKind[Any]]) -> None:
    kinds["silent"] = DestinationKind(StrictModel, _open)
    with pytest.raises(
        Misconfigured, match=r"(?s)two colours.*lose.*another kind or mode.*without `--colours`"
    ):
        require_fit_for_colours([pipe(destination_of("silent"))])


def test_a_writer_is_refused_only_with_colours(kinds: dict[str, DestinationKind[Any]]) -> None:
    kinds["silent"] = DestinationKind(StrictModel, _open)
    destination = pipe(destination_of("silent")).destinations[0]
    require_usable(destination, coloured=False)
    require_usable(pipe(HTTP).destinations[0], coloured=True)
    with pytest.raises(Misconfigured, match="its deliveries wait"):
        require_usable(destination, coloured=True)
