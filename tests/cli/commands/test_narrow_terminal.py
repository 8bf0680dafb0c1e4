"""Output of `hifi minutes`, `top`, `status` and `dead list` in 80 columns, without a terminal."""

import io
import json
import re
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from rich.console import Console

from hifi.delivery.dead_letters.letter import DeadLetter
from hifi_cli.commands.dead import dead_letter_table
from hifi_cli.commands.lost import lost_table
from hifi_cli.commands.status import print_status
from hifi_cli.display.tables import print_table

MINUTE = 29_730_000  # 2026-07-11T20:00Z
BIG = {
    "in": 987_654, "delivered": 1_975_308, "lost": 12_345, "in_flight": 23_456, "waiting": 34_567,
    "parked": 0,
    "dead": 45_678, "duplicates": 56_789, "late": 67_890, "p95_us": 9_876_543,
}  # fmt: skip
CLOSED = [
    {"minute": MINUTE, "state": "up", "causes": []} | dict.fromkeys(BIG, 0),
    {"minute": MINUTE + 1, "state": "down", "causes": ["loss", "lag", "ingest"]} | BIG,
]
NOW = int(time.time() // 60)
OPEN = (
    {"minute": NOW, "state": "provisional", "causes": []}
    | BIG
    | dict.fromkeys(("lost", "waiting", "parked", "in_flight", "late"))
)
MINUTES = {"minutes": CLOSED, "provisional": [CLOSED[0], OPEN]}
PIPES = {
    "pipes": [
        {
            "pipe": "orders-of-the-shop", "state": "alarm", "alarms": ["availability", "destination-failing"],
            "rate_in": 12345.6, "rate_out": 23456.7, "p95_us": 9_876_543, "lost": 12_345, "dead": 45_678,
            "retrying": 34_567, "in_flight": 23_456, "share_day": 0.99987,
        }
    ],
    "status": {
        "behind_s": 0.4,
        "groups": [{"service": "egest", "topic": "hifi.enriched", "records": 4348, "seconds": 1.5}],
    },
}  # fmt: skip


class FakeObserve(BaseHTTPRequestHandler):
    def do_GET(self):
        body = json.dumps(MINUTES if "/minutes" in self.path else PIPES).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


@pytest.fixture(scope="module")
def observe():
    with ThreadingHTTPServer(("127.0.0.1", 0), FakeObserve) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def assert_whole(text, *phrases):
    """Every number and every word of a heading is there, nothing is cut, and every line fits."""
    words = set(re.split(r"\s+", text))
    assert "…" not in text, text
    assert all(word in words for phrase in phrases for word in phrase.split()), text
    assert max(map(len, text.splitlines())) <= 80, text


def test_minutes_are_readable(hifi, observe):
    code, text, errors = hifi("minutes", "orders", "--url", observe, COLUMNS="80")
    assert code == 0, errors
    assert_whole(
        text, "minute UTC state accepted events delivered deliveries lost dead letters lag p95",
        "2026-07-11T20:01 987,654 1,975,308 12,345 45,678 9,877 ms", "up down",
    )  # fmt: skip
    code, text, _ = hifi("minutes", "orders", "--url", observe, "--wide", COLUMNS="80")
    for number in (
        "987,654",
        "1,975,308",
        "12,345",
        "23,456",
        "34,567",
        "45,678",
        "56,789",
        "67,890",
        "9,877 ms",
    ):
        assert number in text, text
    assert "…" not in text


def test_top_is_readable(hifi, observe):
    code, text, errors = hifi("top", "--once", "--url", observe, COLUMNS="80")
    assert code == 0, errors
    assert_whole(
        text, "pipe state in out ev/s lag p95 lost events dead letters up today",
        "12,345.6 23,456.7 9,877 ms 12,345 45,678 99.99", "4,348 records",
    )  # fmt: skip
    assert "34,567" in hifi("top", "--once", "--wide", "--url", observe, COLUMNS="80")[1]


def test_dead_letters_are_readable():
    headers = {
        "ce_id": "b5f0c2f0-5e8a-4b0c-9a55-0d6c1e0f7a11", "hifi_pipe": "orders-of-the-shop",
        "hifi_service": "egest", "hifi_destination": "warehouse", "hifi_reason": "status-404",
        "hifi_detail": "the destination answered 404", "hifi_pointer": "",
    }  # fmt: skip
    letter = DeadLetter(
        12,
        1_234_567,
        1_783_728_060_123,
        None,
        b"",
        [(name, text.encode()) for name, text in headers.items()],
        True,
    )
    text = on_paper(lambda console: print_table(dead_letter_table([letter]), console))
    assert_whole(text, "id time pipe event refused by reason replayed", "12:1234567 yes")
    assert re.search(r"\d\d-\d\d \d\d:\d\d:\d\d", text), text
    wide_text = on_paper(lambda console: print_table(dead_letter_table([letter], wide=True), console), 200)
    assert "the destination answered 404" in wide_text
    of_step = [("hifi_service", b"state"), ("hifi_step", b"carrier-delays"), ("hifi_reason", b"late")]
    letter = DeadLetter(0, 1, 1_783_728_060_123, None, b"", of_step)
    assert letter.summary()["step"] == "carrier-delays"
    assert "state for carrier-delays" in on_paper(
        lambda console: print_table(dead_letter_table([letter], wide=True), console), 200
    )


def test_an_id_of_any_length_takes_a_line_or_two():
    headers = [("ce_id", b"x" * 10_000), ("hifi_pipe", b"orders"), ("hifi_service", b"normalize")]
    letter = DeadLetter(12, 7, 1_783_728_060_123, None, b"", headers, False)
    for is_wide in (False, True):
        text = on_paper(
            lambda console, is_wide=is_wide: print_table(dead_letter_table([letter], wide=is_wide), console)
        )
        assert len(text.splitlines()) <= 10, text
    body = {
        "count": 1,
        "hidden": False,
        "lost": [{"ce_id": "x" * 10_000, "hop": "egest", "destination": "d"}],
    }
    assert len(on_paper(lambda console: print_table(lost_table(body), console)).splitlines()) <= 8


def test_status_is_readable():
    instance = {
        "name": "normalize-12", "service": "normalize", "pid": 4_194_304, "port": 65535, "ready": False,
        "state": "starting", "waiting": ["the pipe registry is not loaded yet"], "rate_per_s": 12_345.6,
        "log": "/srv/hifi/logs/normalize-12.log",
    }  # fmt: skip
    status = {
        "stream": "hifi", "kafka": "127.0.0.1:9092", "url": "http://127.0.0.1:8080", "trigger": "real-time",
        "stream_log": "0a" * 16,
        "console": "http://127.0.0.1:8090", "problem": None, "instances": [instance],
        "colours": [{"colour": "blue", "state": "active", "share": 0.75}],
        "ingest_releases": ["", "0.1.0rc2"],
        "verdicts": [{"scope": "pipe/orders", "condition": "unstable", "reasons": ["lag: p95 3 s"]}],
        "backlog": {"normalize": 1_234_567, "enrich": 12}, "uncommitted": {"enrich": 4_348},
        "sources": [{
            "pipe": "changes-of-the-shop", "backfill": True, "done": 1_234_567,
            "remaining": 9_876_543, "read_per_s": 12_345.6,
            "arriving_per_s": 23_456.7, "limit_per_s": 34_567.8, "left_s": 3_600.0, "late": "normalize",
        }],
        "certificates": ["the certificate of /a.pem (server of ingest) expires"],
        "pipes": [{"pipe": "orders", "revision": 17, "destinations": ["warehouse"], "description": "Orders " * 20}],
    }  # fmt: skip
    text = on_paper(lambda console: print_status(status, console))
    assert_whole(
        text, "instance state rate ev/s waiting for records in running batch pipe revision destinations description",
        "normalize-12 starting 12,346 1,234,567 12 4,348 17 9,876,543 12,346 23,457 34,568",
    )  # fmt: skip
    assert "Health of pipe/orders unstable: lag: p95 3 s" in text
    assert "Colours blue active 75 % of the requests" in text
    assert "Processes of ingest run on several releases: one before 0.1.0rc2, 0.1.0rc2" in " ".join(
        text.split()
    )
    assert f"Log {'0a' * 16}" in text
    assert "Warning: the certificate of /a.pem (server of ingest) expires" in text
    assert "4194304" not in text
    assert "4194304" in on_paper(lambda console: print_status(status, console, wide=True))


def on_paper(write, width=80):
    console = Console(width=width, file=io.StringIO(), record=True)
    write(console)
    return console.export_text()


@pytest.mark.more
def test_open_minutes_are_shown_as_provisional(hifi, observe):
    _, text, _ = hifi("minutes", "orders", "--url", observe, COLUMNS="80")
    rows = [line.split() for line in text.splitlines() if line.startswith("20")]
    assert [row[1] for row in rows] == ["up", "down", "provisional"], "a minute that is closed is listed once"
    assert rows[2][2:5] == ["987,654", "1,975,308", "-"], "loss is known only when a minute is closed"
    assert len(json.loads(hifi("minutes", "orders", "--url", observe, "--json")[1])) == 2
