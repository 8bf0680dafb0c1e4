"""`hifi up` and the commands that talk to a running mesh, with an external sender and destination."""

import getpass
import hashlib
import http.client
import json
import re
import signal
import socket
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import psutil
import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import sync_playwright
from tests.support import external_sender
from tests.support.browser import LAUNCH, needs_browser
from tests.support.collector import collector

from hifi_infra.kafka.credentials import cluster_credentials
from hifi_infra.ports import free_port, is_free

pytestmark = pytest.mark.timeout(400)
PIPE = """
pipe: count
source:
  keys: [{{sha256: 2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824}}]
destinations:
  - name: books
    url: {url}/count
"""


def ports():
    """Options that give a mesh ports of its own."""
    port = free_port()
    return "--port", port, "--console-port", free_port(but={port})


@pytest.fixture(scope="module")
def traces():
    """The OpenTelemetry collector that the mesh tells."""
    with collector() as trace_collector:
        yield trace_collector


@pytest.fixture(scope="module")
def running_mesh(start_hifi, tmp_path_factory, external_destination, traces):
    """A running mesh on a secured Kafka, each service with a user of its own: its folder, its port, its command."""
    pipes, data = tmp_path_factory.mktemp("pipes"), tmp_path_factory.mktemp("data") / "mesh"
    (pipes / "count.yaml").write_text(PIPE.format(url=external_destination.url))
    options = ports()
    arguments = ("up", "--pipes", pipes, "--data", data, *options, "--partitions", 2, "--secure")
    command = start_hifi(
        *arguments,
        HIFI_OBSERVE_SETTLE_S="2",
        HIFI_OBSERVE_OTLP_ENDPOINT=traces.url,
        HIFI_OBSERVE_OTLP_SHARE="0",
    )
    command.data, command.port, command.console, command.pipes = data, options[1], options[3], pipes
    command.wait_for("Send events to")
    return command


def test_up_prints_the_address_of_ingest_an_example_and_the_durability(running_mesh):
    running_mesh.wait_for("not the loss of the disk")
    output = running_mesh.text()
    assert f"Send events to http://127.0.0.1:{running_mesh.port}" in output
    assert "/v1/pipes/count/events" in output
    assert "survive the crash of any process" in output


def test_an_external_destination_receives_each_event_exactly_once_and_unchanged(
    running_mesh, external_destination
):
    sender = external_sender.ExternalSender(running_mesh.port, "hello", rate=100, prefix="once")
    sender.start()
    while len(sender.acknowledged) < 200:
        assert sender.is_alive()
        time.sleep(0.1)
    sender.stop()
    assert sender.refused == 0
    counts, bodies = external_sender.wait_for(sender.acknowledged, external_destination, 30)
    assert {counts[name] for name in sender.acknowledged} == {1}
    for name in sender.acknowledged:
        path, body = bodies[name]
        assert path == "/count"
        assert body == json.dumps({"n": int(name.split("-")[1]), "é": "ü"}).encode(), "byte for byte"


def test_a_trace_goes_from_the_sender_through_every_hop_to_the_destination(
    running_mesh, external_destination, traces
):
    trace, parent = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
    connection = http.client.HTTPConnection("127.0.0.1", running_mesh.port, timeout=10)
    headers = external_sender.ExternalSender(running_mesh.port, "hello", rate=1).headers("traced")
    connection.request("POST", "/v1/events", b"{}", headers | {"traceparent": f"00-{trace}-{parent}-01"})
    assert connection.getresponse().status == 202
    connection.close()
    external_sender.wait_for(["traced"], external_destination, 30)
    assert external_sender.headers(external_destination, "traced")["traceparent"].split("-")[1] == trace

    def trace_spans():
        return {span.raw.name: span for span in traces.spans if span.raw.trace_id.hex() == trace}

    end_s = time.monotonic() + 60
    while "count" not in trace_spans():  # the span of the whole way comes last
        assert time.monotonic() < end_s, sorted(trace_spans())
        time.sleep(0.1)
    spans = trace_spans()
    assert spans["count"].raw.parent_span_id.hex() == parent
    hops = [
        "ingest",
        "transit raw",
        "normalize",
        "transit normalized",
        "enrich",
        "transit enriched",
        "egest",
        "expel",
    ]
    assert set(spans) == {"count", *hops}
    starts = [spans[name].times_us[0] for name in hops]
    assert starts == sorted(starts)
    assert {span.raw.parent_span_id for name, span in spans.items() if name != "count"} == {
        spans["count"].raw.span_id
    }
    assert spans["expel"].attributes["http.response.status_code"] == 204
    assert {span.raw.trace_id.hex() for span in traces.spans} == {trace}, "no other event is sampled"


@pytest.mark.parametrize(
    ("arguments", "content"),
    [
        (("-",), b'{"id":1}\n{"id":2}\n{"id":3}\n'),
        (("-", "--format", "json"), b'[{"id":1},{"id":2},{"id":3}]'),
        (("-", "--types", "--batch", "2"), b"id,name\n1,a\n2,b\n3,c\n"),
    ],
)
def test_send_takes_lines_arrays_and_csv(running_mesh, hifi, arguments, content):
    code, output, errors = hifi(
        "send", "count", *arguments, "--data", running_mesh.data, "--json", stdin=content, HIFI_KEY="hello"
    )
    assert code == 0, errors
    assert json.loads(output) == {
        "accepted": 3, "refused": 0, "repeats": 0, "refusals": [], "problem": None, "in_flight": []
    }  # fmt: skip


def test_send_reports_bad_lines_and_sends_the_others(running_mesh, hifi, tmp_path):
    file = tmp_path / "events.ndjson"
    file.write_text('{"a":1}\nnope\n{"a":' + "[" * 100 + "]" * 100 + '}\n{"a":2}\n')
    code, output, _ = hifi("send", "count", file, "--data", running_mesh.data, "--key", "hello")
    assert code == 1
    assert "2 event(s) accepted, 2 refused" in output
    assert f"{file}:2: not JSON" in output
    assert f"{file}:3: nested deeper" in output


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("count", "-", "--key", "wrong"), "ingest answers 401"),
        (("nothing", "-", "--key", "hello"), "ingest answers 404: this write key has no pipe of that name"),
        (("count", "missing.csv", "--key", "hello"), "missing.csv cannot be read: No such file"),
        (("count", "-"), "give --key, or set HIFI_KEY"),
    ],
)
def test_send_reports_an_error_in_one_message(running_mesh, hifi, arguments, message):
    code, _, errors = hifi("send", *arguments, "--data", running_mesh.data, stdin=b'{"a":1}')
    assert code == 1
    assert message in errors
    assert "Traceback" not in errors


def test_top_minutes_and_lost_show_the_events(running_mesh, hifi, external_destination):
    assert f"Open the console at http://127.0.0.1:{running_mesh.console}/sign-in#" in running_mesh.text()
    assert "count" in hifi("top", "--once", "--data", running_mesh.data)[1]
    assert [
        pipe["pipe"] for pipe in json.loads(hifi("top", "--json", "--data", running_mesh.data)[1])["pipes"]
    ] == ["count"]
    sender = external_sender.ExternalSender(running_mesh.port, "hello", rate=50, prefix="seen")
    sender.start()
    while len(sender.acknowledged) < 50:
        assert sender.is_alive()
        time.sleep(0.1)
    sender.stop()
    external_sender.wait_for(sender.acknowledged, external_destination, 30)
    end_s = time.monotonic() + 150
    minutes: list[dict[str, Any]] = []
    while sum(minute["delivered"] for minute in minutes) < 50:  # a minute closes 2 s after its end
        assert time.monotonic() < end_s, minutes
        time.sleep(1)
        code, output, errors = hifi("minutes", "count", "--json", "--data", running_mesh.data)
        assert code == 0, errors
        minutes = json.loads(output)
    assert {minute["lost"] for minute in minutes} == {0}
    assert "delivered" in hifi("minutes", "count", "--data", running_mesh.data)[1]
    code, output, _ = hifi("lost", "count", minutes[-1]["minute"], "--data", running_mesh.data)
    assert (code, "lost nothing" in output) == (0, True)


def test_commands_send_the_token_of_the_data_folder_or_of_the_environment(running_mesh, hifi, tmp_path):
    url, (token_file,) = f"http://127.0.0.1:{running_mesh.console}", running_mesh.data.glob("*.token")
    assert token_file.stat().st_mode & 0o777 == 0o600
    code, _, errors = hifi("top", "--json", "--url", url, "--data", tmp_path)
    assert (code, "set HIFI_TOKEN" in errors) == (1, True)
    assert hifi("top", "--json", "--url", url, "--data", running_mesh.data)[0] == 0
    token = token_file.read_text().strip()
    assert hifi("top", "--json", "--url", url, "--data", tmp_path, HIFI_TOKEN=token)[0] == 0
    assert hifi("top", "--json", "--url", url, "--data", tmp_path, HIFI_TOKEN_FILE=token_file)[0] == 0
    assert hifi("top", "--json", "--data", running_mesh.data, HIFI_TOKEN="wrong")[0] == 1


@needs_browser
def test_the_console_shows_the_figures_of_the_api(running_mesh, hifi):
    minutes = json.loads(hifi("minutes", "count", "--json", "--data", running_mesh.data)[1])
    assert sum(minute["delivered"] for minute in minutes) >= 50
    with sync_playwright() as driver:
        browser = driver.chromium.launch(**LAUNCH)
        page = browser.new_page()
        page.goto(f"http://127.0.0.1:{running_mesh.console}/pipes/count")
        assert "/sign-in?next=" in page.url
        page.goto(hifi("console", "--data", running_mesh.data)[1].strip())
        page.wait_for_url(f"http://127.0.0.1:{running_mesh.console}/")
        page.goto(f"http://127.0.0.1:{running_mesh.console}/pipes/count")
        page.wait_for_selector("#events .main-svg")
        rows = page.get_by_role("region", name="Loss by minute").locator("tbody tr:not(.provisional)")
        cells_by_minute = {
            int((row.locator("th a").get_attribute("href") or "").rpartition("/")[2]): row.locator(
                "td"
            ).all_inner_texts()
            for row in rows.all()
        }
        for minute in minutes:
            cells = cells_by_minute[minute["minute"]]
            assert cells[0].startswith(minute["state"])
            assert cells[1:3] == [str(minute["in"]), str(minute["delivered"])]
        audit = Axe().run(page)
        assert audit.violations_count == 0, audit.generate_report()
        browser.close()


def test_send_waits_for_an_ingest_that_comes_back(running_mesh, hifi):
    [ingest] = [
        instance
        for instance in json.loads((running_mesh.data / "mesh.json").read_text())["instances"]
        if instance["service"] == "ingest"
    ]
    psutil.Process(ingest["pid"]).kill()
    code, output, errors = hifi(
        "send", "count", "-", "--data", running_mesh.data, "--key", "hello", stdin=b'{"a":1}'
    )
    assert code == 0, errors
    assert "1 event(s) accepted" in output
    assert "ingest-1 ended with SIGKILL" in running_mesh.text()


def test_status_shows_services_backlog_and_pipes(running_mesh, hifi):
    end_s = time.monotonic() + 60
    while True:
        code, output, _ = hifi("status", "--data", running_mesh.data, "--json")
        status = json.loads(output)
        if code == 0 and not sum(status["backlog"].values()):
            break
        assert time.monotonic() < end_s, output
    assert [instance["service"] for instance in status["instances"]] == [
        "ingest",
        "normalize",
        "enrich",
        "egest",
        "retrier",
        "observe",
    ]
    assert status["console"] == f"http://127.0.0.1:{running_mesh.console}"
    assert set(status["backlog"]) == {"normalize", "enrich", "egest", "retrier"}
    assert [pipe["pipe"] for pipe in status["pipes"]] == ["count"]
    assert (status["stream"], status["trigger"], status["brokers"]) == ("hifi", "auto", 1)
    assert re.fullmatch("[0-9a-f]{32}", status["stream_log"])
    code, output, _ = hifi("status", "--data", running_mesh.data)
    assert code == 0
    assert "egest-1" in output


@pytest.mark.more
def test_status_of_an_external_kafka_needs_no_data_folder(running_mesh, hifi, tmp_path):
    kafka = json.loads((running_mesh.data / "mesh.json").read_text())["kafka"]
    operator = cluster_credentials(running_mesh.data / "kafka").security("hifi.operator").environment
    code, output, _ = hifi("status", "--kafka", kafka, "--data", tmp_path, "--json", **operator)
    assert code == 0
    assert json.loads(output)["pipes"][0]["pipe"] == "count"
    code, _, errors = hifi("pipes", "--kafka", kafka, "--stream", "nothing", **operator)
    assert code == 1
    assert "the stream nothing cannot be read" in errors


def test_apply_changes_a_running_mesh_and_refuses_invalid_pipes(
    running_mesh, hifi, external_destination, tmp_path
):
    text = PIPE.format(url=external_destination.url)
    (tmp_path / "count.yaml").write_text(text.replace("/count", "/moved"))
    (tmp_path / "other.yaml").write_text(text.replace("pipe: count", "pipe: other").replace("2cf24", "3cf24"))
    code, output, errors = hifi("apply", tmp_path, "--data", running_mesh.data, "--json")
    assert code == 0, errors
    outcome = json.loads(output)
    assert {name: change["change"] for name, change in outcome.items()} == {
        "count": "changed",
        "other": "new",
    }
    sender = external_sender.ExternalSender(running_mesh.port, "hello", rate=20, prefix="moved")
    sender.start()
    time.sleep(2)
    sender.stop()
    _, bodies = external_sender.wait_for(sender.acknowledged, external_destination, 30)
    assert bodies[sender.acknowledged[-1]][0] == "/moved"

    (tmp_path / "other.yaml").write_text(text.replace("pipe: count", "pipe: other").replace("url:", "urls:"))
    code, output, _ = hifi("apply", tmp_path, "--data", running_mesh.data)
    assert code == 1
    assert "other.yaml:7: destinations[0].urls: unknown key" in output
    code, output, _ = hifi(
        "apply", running_mesh.pipes, "--data", running_mesh.data, "--delete-missing", "--json"
    )
    assert {name: change["change"] for name, change in json.loads(output).items()} == {
        "count": "changed",
        "other": "deleted",
    }
    code, output, _ = hifi("pipes", "--data", running_mesh.data, "--json")
    assert [published["pipe"]["pipe"] for published in json.loads(output)] == ["count"]


STRICT = """
pipe: strict
source:
  keys: [{{sha256: {digest}}}]
  id: id
normalize:
  schema: {{type: object, properties: {{n: {{type: {kind}}}}}}}
enrich:
  fields: {{m: int}}
  required: {required}
destinations:
  - name: books
    url: {url}/strict
"""


def test_dead_letters_are_listed_shown_and_replayed_once(running_mesh, hifi, external_destination, tmp_path):
    key = "strict"
    file = tmp_path / "strict.yaml"
    pipe = {"url": external_destination.url, "digest": hashlib.sha256(key.encode()).hexdigest()}
    file.write_text(STRICT.format(kind="integer", required="[m]", **pipe))
    assert hifi("apply", tmp_path, "--quick", "--data", running_mesh.data)[0] == 0
    events = b'{"id":"good","n":1,"m":1}\n{"id":"bad","n":"one","m":1}\n{"id":"poor","n":1}\n'
    assert hifi("send", "strict", "-", "--data", running_mesh.data, "--key", key, stdin=events)[0] == 0
    external_sender.wait_for(["good"], external_destination, 30)
    letters = sorted(
        dead_letters(running_mesh, hifi, "--pipe", "strict", min_count=2), key=lambda letter: letter["event"]
    )
    assert [
        (letter["event"], letter["service"], letter["reason"], letter["pointer"], letter["replayed"])
        for letter in letters
    ] == [("bad", "normalize", "schema", "/n", False), ("poor", "enrich", "required-null", "", False)]
    assert dead_letters(running_mesh, hifi, "--pipe", "strict", "--until", "1h") == []
    name = letters[0]["id"]
    code, output, _ = hifi("dead", "show", name, "--data", running_mesh.data)
    assert code == 0
    assert "/n" in output
    assert "one" not in output.split("hifi_detail")[0].split("ce_id")[0], "no data unless it is asked for"
    assert (
        '{"id":"bad","n":"one","m":1}'
        in hifi("dead", "show", name, "--data", running_mesh.data, "--value")[1]
    )

    assert hifi("dead", "replay", "--data", running_mesh.data)[0] == 1, "it needs a selection"
    file.write_text(STRICT.format(kind="string", required="[]", **pipe))
    assert hifi("apply", tmp_path, "--quick", "--data", running_mesh.data)[0] == 0
    code, output, _ = hifi("dead", "replay", "--pipe", "strict", "--data", running_mesh.data)
    assert (code, output) == (0, "2 dead letter(s) replayed\n")
    counts, _ = external_sender.wait_for(["bad", "poor"], external_destination, 30)
    code, output, _ = hifi("dead", "replay", name, "--data", running_mesh.data)
    assert (code, output) == (0, "0 dead letter(s) replayed; 1 had been replayed before\n")
    assert [
        letter["replayed"] for letter in dead_letters(running_mesh, hifi, "--pipe", "strict", min_count=2)
    ] == [
        True,
        True,
    ]
    assert hifi("dead", "show", "0:99999", "--data", running_mesh.data)[0] == 1
    counts, _ = external_sender.arrivals(external_destination)
    assert (counts["bad"], counts["poor"]) == (1, 1)
    entries = audit(running_mesh, hifi, "pipe/strict")
    assert {entry["principal"] for entry in entries} == {f"{getpass.getuser()}@{socket.gethostname()}"}
    first, second = (entry for entry in entries if entry["what"] == "apply")
    assert (first["before"], first["after"] is None, second["before"]) == (None, False, first["after"])
    (read_entry,) = (entry for entry in entries if entry["what"] == "read event data")
    assert read_entry["after"] == {"dead_letters": [name]}
    (replayed,) = (entry for entry in entries if entry["what"] == "replay dead letters")
    assert (replayed["outcome"], replayed["after"]) == ("done", {"replayed": 2})


def audit(up, hifi, subject):
    code, output, errors = hifi("audit", "--json", "--data", up.data)
    assert code == 0, errors
    return [entry for entry in json.loads(output) if entry["subject"] == subject]


@pytest.mark.more
def test_the_audit_names_who_parked_a_destination_or_paused_a_pipe_with_before_and_after(running_mesh, hifi):
    destination = next(
        revision["pipe"]["destinations"][0]["name"]
        for revision in json.loads(hifi("pipes", "--json", "--data", running_mesh.data)[1])
        if revision["pipe"]["pipe"] == "count"
    )
    assert hifi("destinations", "park", "count", "nothing", "--data", running_mesh.data)[0] == 1
    for verb in ("park", "resume"):
        assert hifi("destinations", verb, "count", destination, "--data", running_mesh.data)[0] == 0
    for verb in ("pause", "resume"):
        assert hifi("pipes", verb, "count", "--data", running_mesh.data)[0] == 0
    person = f"{getpass.getuser()}@{socket.gethostname()}"
    changes = [
        (entry["principal"], entry["before"], entry["after"], entry["outcome"])
        for entry in audit(running_mesh, hifi, f"destination/count/{destination}")
    ]
    assert changes == [(person, "active", "parked", "done"), (person, "parked", "active", "done")]
    pauses = [
        (entry["principal"], entry["before"], entry["after"])
        for entry in audit(running_mesh, hifi, "pipe/count")
        if entry["what"].endswith("the pipe")
    ]
    assert pauses == [(person, "active", "paused"), (person, "paused", "active")]


class Books(ThreadingHTTPServer):
    """A destination that answers with `status`, and keeps the bodies that it accepted."""

    def __init__(self):
        self.status = 400
        self.accepted: list[bytes] = []
        super().__init__(("127.0.0.1", 0), BooksRequest)


class BooksRequest(BaseHTTPRequestHandler):
    """One request to `Books`."""

    server: Books

    def do_POST(self):
        body = self.rfile.read(int(self.headers["content-length"]))
        if self.server.status == 200:
            self.server.accepted.append(body)
        self.send_response(self.server.status)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, *_):
        """Write nothing."""


BOOKS = """
pipe: books
source:
  keys: [{{sha256: {digest}}}]
  id: id
enrich:
  fields: {{n: int}}
  derive: {{double: n * 2}}
destinations:
  - name: {name}
    url: http://127.0.0.1:{port}/
    when: {when}
"""


@pytest.mark.more
def test_a_replay_asks_the_condition_as_it_is_now_and_refuses_what_is_not_declared(
    running_mesh, hifi, tmp_path
):
    file, server = tmp_path / "books.yaml", Books()
    threading.Thread(target=server.serve_forever, daemon=True).start()
    digest = hashlib.sha256(b"books").hexdigest()

    def declare(when, name="books"):
        file.write_text(BOOKS.format(digest=digest, name=name, port=server.server_port, when=when))
        code, output, errors = hifi("apply", tmp_path, "--quick", "--data", running_mesh.data)
        assert code == 0, output + errors

    def send(*events):
        lines = "\n".join(json.dumps(event) for event in events).encode()
        assert hifi("send", "books", "-", "--data", running_mesh.data, "--key", "books", stdin=lines)[0] == 0

    declare("n < 100")
    send({"id": "a", "n": 1}, {"id": "b", "n": 50})
    letters = dead_letters(running_mesh, hifi, "--pipe", "books", min_count=2)
    assert {(letter["service"], letter["reason"]) for letter in letters} == {("egest", "status-400")}
    server.status = 200
    declare("n > 10")
    assert (
        hifi("dead", "replay", "--pipe", "books", "--data", running_mesh.data)[1]
        == "2 dead letter(s) replayed\n"
    )
    send({"id": "c", "n": 70})
    end_s = time.monotonic() + 60
    while len(server.accepted) < 2:
        assert time.monotonic() < end_s, server.accepted
        time.sleep(0.05)
    assert sorted(server.accepted) == [
        b'{"id": "b", "n": 50,"double":100}',
        b'{"id": "c", "n": 70,"double":140}',
    ], "each once, as enrich made it, and a is filtered now"

    server.status = 400
    send({"id": "d", "n": 60})
    letters = dead_letters(running_mesh, hifi, "--pipe", "books", min_count=3)
    declare("n > 10", name="library")
    for _ in range(2):
        code, output, errors = hifi("dead", "replay", "--pipe", "books", "--data", running_mesh.data)
        assert (code, output) == (
            1,
            "0 dead letter(s) replayed; 2 had been replayed before; 1 cannot be replayed\n",
        )
        assert "the destination books, which the pipe books does not declare any more" in errors
    assert len(dead_letters(running_mesh, hifi, "--pipe", "books", min_count=3)) == len(letters) == 3
    server.shutdown()


def dead_letters(up, hifi, *arguments, min_count=1):
    """The listed letters, once there are `min_count` of them or ten seconds are over."""
    end_s = time.monotonic() + 10
    while True:
        code, output, errors = hifi("dead", "list", "--json", "--data", up.data, *arguments)
        assert code == 0, errors
        letters = json.loads(output)
        if len(letters) >= min_count or time.monotonic() > end_s:
            return letters


@pytest.mark.more
def test_a_second_mesh_on_the_folder_and_a_taken_port_are_refused(running_mesh, start_hifi, tmp_path):
    second_mesh = start_hifi("up", "--data", running_mesh.data)
    assert second_mesh.wait(30) == 1
    assert "a mesh already runs on" in second_mesh.text()
    assert "hifi down --data" in second_mesh.text()
    mesh_on_taken_port = start_hifi("up", "--data", tmp_path / "other", "--port", running_mesh.port)
    assert mesh_on_taken_port.wait(30) == 1
    assert f"port {running_mesh.port} of 127.0.0.1 is in use" in mesh_on_taken_port.text()
    mesh_on_taken_port.wait_gone()


def test_down_stops_the_mesh_gracefully_and_leaves_no_process(running_mesh, hifi):
    code, output, _ = hifi("down", "--data", running_mesh.data)
    assert (code, output) == (0, "The mesh has stopped.\n")
    assert running_mesh.wait(10) == 0
    running_mesh.wait_gone()
    assert is_free(running_mesh.port)
    assert hifi("down", "--data", running_mesh.data)[1].startswith("No mesh is running on")
    code, _, errors = hifi("status", "--data", running_mesh.data)
    assert code == 1
    assert "start one with `hifi up`" in errors


@pytest.mark.parametrize(("arguments", "message"), [
    (("--scale", "nothing=2"), "no service is called 'nothing'"),
    (("--kafka", "127.0.0.1:1", "--brokers", "3"), "give one of them"),
    (("--pipes", "missing"), "is not a folder"),
])  # fmt: skip
def test_up_reports_an_error_in_one_message(hifi, tmp_path, arguments, message):
    code, output, errors = hifi("up", "--data", tmp_path / "data", *arguments)
    assert code == 1
    assert message in output + errors
    assert "Traceback" not in output + errors


@pytest.mark.more
def test_an_unreachable_kafka_ends_up_with_a_clear_message(start_hifi, tmp_path):
    command = start_hifi("up", "--data", tmp_path / "data", "--kafka", "127.0.0.1:1", *ports())
    assert command.wait(90) == 1
    assert "Kafka at 127.0.0.1:1 did not answer" in command.text()
    command.wait_gone()


def test_sigterm_stops_the_mesh_as_ctrl_c_does(start_hifi, tmp_path):
    command = start_hifi("up", "--data", tmp_path / "data", *ports())
    command.wait_for("creating the stream's topics")
    command.signal(signal.SIGTERM)
    assert command.wait(60) == 0
    command.wait_gone()
