"""A destination whose kind fails when it is opened is shown, and keeps egest and other destinations from nothing."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from tests.support.egest.egest_stream import pipe

from hifi.pipe.model import ConnectorDestination
from hifi.runtime.errors import Retryable
from hifi.runtime.health import Health
from hifi_egest.senders.connector_sender import _OpenWriter
from hifi_egest.senders.make_sender import make_sender
from hifi_egest.settings import EgestSettings


def fail(*_: object, **__: object) -> Any:
    raise TypeError("geheim")


def resources() -> Any:
    return SimpleNamespace(
        settings=EgestSettings(kafka="127.0.0.1:1", stream="s"),
        health=Health("egest", "i"),
        coloured=lambda: False,
        log=lambda: "log",
    )


@pytest.mark.parametrize("is_connector", [False, True])
async def test_an_error_of_a_kind_makes_its_destination_unusable_alone(
    monkeypatch: pytest.MonkeyPatch, is_connector: bool
) -> None:
    lane_resources = resources()
    destination: Any = pipe("http://127.0.0.1:1").destinations[0]
    if is_connector:
        monkeypatch.setattr("hifi_egest.senders.connector_sender.read_settings", fail)
        settings = {"bootstrap": "a:1", "topic": "t"}
        destination = ConnectorDestination.model_validate(
            {"name": "d", "kind": "kafka", "settings": settings}
        )
    else:
        kind = SimpleNamespace(open=fail)
        monkeypatch.setattr("hifi_egest.senders.make_sender.installed_sender_kind", lambda _: kind)
    sender = make_sender("flights", destination, lane_resources, missing_changed=lambda: None)
    assert not sender.ready
    assert "TypeError" in sender.missing
    assert "geheim" not in sender.missing
    assert list(lane_resources.health.warnings.values()) == [sender.missing]
    await sender.stop()
    assert lane_resources.health.warnings == {}


async def test_a_writer_is_closed_after_its_last_write_and_takes_no_other_one() -> None:
    events: list[str] = []
    written = asyncio.Event()

    async def write(_: object) -> None:
        events.append("write")
        await written.wait()

    async def close() -> None:
        events.append("close")

    double: Any = SimpleNamespace(write=write, close=close)
    writer = _OpenWriter(double)
    writing = asyncio.create_task(writer.write([], 5))
    await asyncio.sleep(0)
    closing = asyncio.create_task(writer.close())
    await asyncio.sleep(0)
    written.set()
    await writing
    with pytest.raises(Retryable, match="declared anew or deleted"):
        await writer.write([], 5)
    await closing
    assert events == ["write", "close"]
