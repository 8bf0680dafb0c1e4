"""Data of events is shown to the operator, and on the machine itself where observe listens there only."""

from typing import Any

import pytest
from starlette.requests import Request

from hifi_observe.web import event_data
from hifi_observe.web.event_data import EventDataReaders

LETTER = {"id": "1", "data": "secret", "hidden": False}


def _request(token: str | None) -> Request:
    headers = [] if token is None else [(b"authorization", f"Bearer {token}".encode())]
    return Request(
        {"type": "http", "method": "GET", "path": "/", "headers": headers, "client": ("10.0.0.9", 1)}
    )


@pytest.mark.parametrize(
    ("host", "token", "sent", "shown"),
    [
        ("127.0.0.1", "", None, True),
        ("::1", "", None, True),
        ("localhost", "", None, True),
        ("127.0.0.1", "open", None, True),
        ("0.0.0.0", "", None, False),
        ("0.0.0.0", "", "", False),
        ("::", "", None, False),
        ("10.0.0.1", "", None, False),
        ("0.0.0.0", "open", None, False),
        ("0.0.0.0", "open", "wrong", False),
        ("0.0.0.0", "open", "open", True),
    ],
)
def test_data_is_withheld_from_whoever_reaches_the_port(
    monkeypatch: pytest.MonkeyPatch, host: str, token: str, sent: str | None, shown: bool
) -> None:
    read: list[Any] = []
    monkeypatch.setattr(
        event_data.logger, "info", lambda event, **fields: read.append((event, fields["peer"]))
    )
    (letter,) = EventDataReaders(host, token).shown(_request(sent), "flights", [LETTER])
    assert (letter["data"], letter["withheld"]) == (("secret", False) if shown else ("", True))
    assert read == ([("event-data-read", "10.0.0.9")] if shown else [])
