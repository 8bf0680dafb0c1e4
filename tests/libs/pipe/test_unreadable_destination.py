"""A process without the package of HTTP destinations reads, keeps and judges their keys."""

from collections.abc import Iterator
from importlib.metadata import EntryPoints

import pytest

from hifi.pipe import model
from hifi.pipe.endpoints import endpoints
from hifi.pipe.limit_check import refusals
from hifi.pipe.limits import pipe_limits
from hifi.pipe.model import Pipe, UnreadableDestination

DECLARED = {
    "pipe": "orders",
    "source": {"keys": [{"sha256": "0" * 64}]},
    "destinations": [
        {
            "name": "shop",
            "url": "https://shop.example/in",
            "headers": {"authorization": {"env": "SHOP_TOKEN", "prefix": "Bearer "}},
            "signing": {"env": "SHOP_KEY"},
            "concurrency": 3,
        }
    ],
}


@pytest.fixture
def pipe(monkeypatch: pytest.MonkeyPatch) -> Iterator[Pipe]:
    monkeypatch.setattr("hifi.pipe.installed_kinds.entry_points", lambda **_: EntryPoints())
    model.http_declaration.cache_clear()
    yield Pipe.model_validate(DECLARED)
    monkeypatch.undo()
    model.http_declaration.cache_clear()


def test_the_keys_are_kept_as_they_are_declared(pipe: Pipe) -> None:
    (destination,) = pipe.destinations
    assert isinstance(destination, UnreadableDestination)
    assert destination.concurrency == 3
    dumped_pipe = pipe.model_dump(mode="json", by_alias=True, exclude_defaults=True)
    assert dumped_pipe["destinations"] == DECLARED["destinations"]
    assert Pipe.model_validate_json(pipe.model_dump_json()) == pipe


def test_its_hosts_and_secrets_are_judged(pipe: Pipe, monkeypatch: pytest.MonkeyPatch) -> None:
    assert [(path, host) for path, _, host, _ in endpoints(pipe)] == [
        (("destinations", 0, "url"), "shop.example")
    ]
    monkeypatch.setenv("HIFI_PIPES_SECRET_PREFIXES", "OTHER_")
    assert [path for path, _ in refusals(pipe, pipe_limits())] == [
        ("destinations", 0, "headers", "authorization"),
        ("destinations", 0, "signing"),
    ]
