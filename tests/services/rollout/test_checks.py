"""Declarations are checked before they are put into force."""

from typing import Any

import pytest

from hifi.pipe.model import Pipe
from hifi.runtime.errors import Misconfigured
from hifi_rollout.checks import require_valid


def pipe(**destination: Any) -> Pipe:
    destination_data = {"name": "d", **destination}
    return Pipe.model_validate(
        {"pipe": "orders", "source": {"keys": [{"env": "K"}]}, "destinations": [destination_data]}
    )


def test_a_pipe_that_would_lose_events_of_a_colour_is_refused() -> None:
    settings = {"warehouse": "/srv/lake", "table": "a.b", "columns": {"id": "int"}}
    require_valid(pipe(kind="iceberg", settings=settings), {}, coloured=True)
    rows = pipe(kind="iceberg", settings=settings | {"mode": "upsert", "key": ["id"]})
    require_valid(rows, {}, coloured=False)
    require_valid(pipe(url="http://127.0.0.1:9/"), {}, coloured=True)
    with pytest.raises(Misconfigured, match="orders/d: with `mode: upsert` two services lake"):
        require_valid(rows, {}, coloured=True)


def test_a_pipe_that_names_what_is_not_allowed_is_refused() -> None:
    settings = {"warehouse": "/srv/lake", "table": "a.b", "properties": {"py-io-impl": "planted.Planted"}}
    with pytest.raises(Misconfigured, match="'py-io-impl' of a catalog is not allowed"):
        require_valid(pipe(kind="iceberg", settings=settings), {}, coloured=False)
