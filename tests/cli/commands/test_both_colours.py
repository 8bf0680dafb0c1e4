"""`hifi lost`, `event`, `skew` and `top` ask both colours in the folder of both, and name one that gives no answer."""

import json
import re
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from tests.support.described_mesh import describe
from typer.testing import CliRunner, Result

from hifi_cli.app import command_line
from hifi_infra.mesh import running

MINUTE = "2026-11-21T10:04"
LOST_ROW = {"hop": "egest", "destination": "crm", "partition": 0, "epoch": "f" * 16}
EVENT = {
    "partition": 1,
    "offset": 7,
    "wanted": ["crm"],
    "not_wanted": [],
    "outcomes": [{"destination": "crm", "outcome": "delivered", "reason": "", "release": "", "at_ms": 1}],
}


def lost_body(count: int) -> dict[str, Any]:
    rows = [LOST_ROW | {"sequence": number, "ce_id": f"e{number}"} for number in range(count)]
    return {"minute": 29_400_000, "count": count, "hidden": False, "hidden_because": None, "lost": rows}


def event_body(*events: dict[str, Any], provisional: bool = False) -> dict[str, Any]:
    return {"minute": 29_400_000, "provisional": provisional, "events": list(events)}


def skew_body(state: str) -> dict[str, Any]:
    field = {"field": "score", "state": state, "distance": 0.3, "threshold": 0.1, "buckets": []}
    return {"fields": [field | {"window": {"from": 1, "to": 30}}]}


def top_body(rate: float) -> dict[str, Any]:
    row = {
        "pipe": "orders",
        "state": "flowing",
        "alarms": [],
        "rate_in": rate,
        "rate_out": rate,
        "share_day": 1,
    }
    row |= dict.fromkeys(("p95_us", "lost", "dead", "retrying", "in_flight"), 0)
    return {"pipes": [row], "status": {"behind_s": 0.4, "groups": []}}


class StubObserve:
    """An API of observe that gives one answer to all requests."""

    def __init__(self, stack: ExitStack) -> None:
        self.status = 200
        self.body: dict[str, Any] = {}
        stub = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                content = json.dumps(stub.body).encode()
                self.send_response(stub.status)
                self.send_header("content-length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, *_: object) -> None:
                pass

        server = stack.enter_context(ThreadingHTTPServer(("127.0.0.1", 0), Handler))
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        stack.callback(server.shutdown)
        self.url = f"http://127.0.0.1:{server.server_port}"


class TwoColours:
    """The folder of a mesh with the colours blue and green, both awake, each with its stub of observe."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self._data, self._stack = folder, stack
        self.blue, self.green = StubObserve(stack), StubObserve(stack)
        folders = {name: folder / name for name in ("blue", "green")}
        self._describe(folder, None, folders)
        self._describe(folders["blue"], self.blue.url)
        self._locks = stack.enter_context(ExitStack())
        self._describe(folders["green"], self.green.url, stack=self._locks)

    def _describe(
        self,
        folder: Path,
        console: str | None,
        colours: dict[str, Path] | None = None,
        stack: ExitStack | None = None,
    ) -> None:
        describe(folder, console=console, colours=colours or {})
        (stack or self._stack).enter_context(running.lock(folder))

    def green_sleeps(self) -> None:
        self._locks.close()

    def hifi(self, *arguments: str) -> Result:
        return CliRunner().invoke(command_line(), [*arguments, "--data", str(self._data)])


@pytest.fixture
def colours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[TwoColours]:
    monkeypatch.setenv("COLUMNS", "200")
    for name in ("HIFI_OBSERVE_URL", "HIFI_TOKEN", "HIFI_TOKEN_FILE"):
        monkeypatch.delenv(name, raising=False)
    with ExitStack() as stack:
        yield TwoColours(tmp_path, stack)


def test_the_lost_events_of_both_colours_are_listed(colours: TwoColours) -> None:
    colours.blue.body, colours.green.body = lost_body(0), lost_body(3)
    result = colours.hifi("lost", "orders", MINUTE, "--json")
    assert result.exit_code == 3, result.output
    assert [(row["colour"], row["ce_id"]) for row in json.loads(result.stdout)] == [
        ("green", "e0"),
        ("green", "e1"),
        ("green", "e2"),
    ]
    table = colours.hifi("lost", "orders", MINUTE).stdout
    assert "3 lost events" in table
    assert len(re.findall(r"egest +crm +green", table)) == 3
    colours.green.body = lost_body(0)
    result = colours.hifi("lost", "orders", MINUTE)
    assert (result.exit_code, "orders lost nothing" in result.stdout) == (0, True)


def test_nothing_is_called_lost_by_no_colour_while_one_gave_no_answer(colours: TwoColours) -> None:
    colours.blue.body = lost_body(0)
    colours.green.status, colours.green.body = 404, {"detail": "The minute is not closed yet."}
    result = colours.hifi("lost", "orders", MINUTE)
    assert (result.exit_code, result.stdout) == (1, "")
    assert "green: The minute is not closed yet." in result.stderr
    colours.blue.body = lost_body(2)
    result = colours.hifi("lost", "orders", MINUTE)
    assert (result.exit_code, "2 lost events" in result.stdout) == (3, True)
    assert "green: The minute is not closed yet." in result.stderr
    colours.blue.body = lost_body(0)
    colours.green_sleeps()
    result = colours.hifi("lost", "orders", MINUTE)
    assert (result.exit_code, result.stdout) == (1, "")
    assert "green does not run; `hifi colour wake green` starts it" in result.stderr
    colours.blue.status, colours.blue.body = 404, {"detail": "There is no pipe."}
    result = colours.hifi("lost", "orders", MINUTE)
    assert (result.exit_code, "blue: There is no pipe." in result.stderr) == (1, True)


def test_an_event_of_either_colour_is_shown(colours: TwoColours) -> None:
    colours.blue.body, colours.green.body = event_body(), event_body(EVENT, provisional=True)
    result = colours.hifi("event", "orders", MINUTE, "e1")
    assert result.exit_code == 0, result.output
    assert "green raw 1:7" in result.stdout
    assert "the minute is still open" in result.stdout
    [event] = json.loads(colours.hifi("event", "orders", MINUTE, "e1", "--json").stdout)
    assert event == EVENT | {"provisional": True, "colour": "green"}
    colours.green.body = event_body(provisional=True)
    result = colours.hifi("event", "orders", MINUTE, "e1")
    assert (result.exit_code, "which is still open" in result.stdout) == (3, True)
    colours.green.status, colours.green.body = 503, {"detail": "Kafka does not answer."}
    result = colours.hifi("event", "orders", MINUTE, "e1")
    assert (result.exit_code, result.stdout) == (1, "")
    assert "green: Kafka does not answer." in result.stderr


def test_a_field_that_drifts_in_either_colour_is_found(colours: TwoColours) -> None:
    colours.blue.body, colours.green.body = skew_body("steady"), skew_body("drifted")
    result = colours.hifi("skew", "orders")
    assert result.exit_code == 3, result.output
    assert "score of blue: steady" in result.stdout
    assert "score of green: drifted" in result.stdout
    colours.green.status = 503
    assert colours.hifi("skew", "orders").exit_code == 1
    colours.green_sleeps()
    result = colours.hifi("skew", "orders")
    assert (result.exit_code, "green does not run" in result.stderr) == (0, True)


def test_top_has_the_pipes_of_each_colour_that_runs(colours: TwoColours) -> None:
    colours.blue.body, colours.green.body = top_body(1.5), top_body(7.5)
    result = colours.hifi("top", "--once")
    assert result.exit_code == 0, result.output
    assert re.search(r"orders +blue +flowing +1\.5", result.stdout)
    assert re.search(r"orders +green +flowing +7\.5", result.stdout)
    assert "green: Age of these figures: 0.4 s" in result.stdout
    bodies = json.loads(colours.hifi("top", "--json").stdout)
    assert {name: body["pipes"][0]["rate_in"] for name, body in bodies.items()} == {"blue": 1.5, "green": 7.5}
    colours.green_sleeps()
    result = colours.hifi("top", "--once")
    assert (result.exit_code, "7.5" in result.stdout) == (0, False)
    assert "green does not run" in result.stderr
    assert json.loads(colours.hifi("top", "--json", "--url", colours.blue.url).stdout) == top_body(1.5)
