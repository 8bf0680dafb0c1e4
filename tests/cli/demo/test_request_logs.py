"""The sender and the destination of the demo, connected directly: both log every event exactly once."""

import ast
import asyncio
import collections
import sys
from pathlib import Path

import pytest

from hifi_cli.demo import destination
from hifi_cli.demo.expected import ALERTS, CANCELLATIONS, DEPARTURES
from hifi_cli.demo.verify import RequestLogReader, read_send_log
from hifi_cli.demo.workspace import Workspace
from hifi_infra.mesh.health_probe import get
from hifi_infra.ports import free_port


@pytest.fixture
async def workspace(tmp_path):
    workspace = Workspace.at(tmp_path)
    destination = workspace.destination()
    await destination.start()
    await workspace.wait_for_destination()
    yield workspace
    await destination.kill()


async def post(port, path, body, headers=""):
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    head = f"POST {path} HTTP/1.1\r\nHost: x\r\n{headers}Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    writer.write(head.encode() + body)
    answer = await reader.readuntil(b"\r\n\r\n")
    writer.close()
    return answer


async def test_every_event_is_logged_once_by_sender_and_destination(workspace):
    rows = workspace.write_events(300)
    # The destination takes the place of ingest.
    destination_workspace = Workspace(
        workspace.data, workspace.destination_port, workspace.destination_port, write_key=workspace.write_key
    )
    sender = destination_workspace.sender(600)
    await sender.start()
    assert await sender.wait() == 0
    assert await workspace.counts() == 300
    sent_requests = read_send_log(workspace.send_log)
    assert sent_requests.keys() == rows.keys()
    assert {request.status for request in sent_requests.values()} == {204}
    arrival_counts = collections.Counter(
        arrival.id for arrival in RequestLogReader(workspace.request_log).read()
    )
    assert arrival_counts == dict.fromkeys(rows, 1)
    dues = sorted(request.due_ns for request in sent_requests.values())
    assert (dues[-1] - dues[0]) / 1e9 == pytest.approx(299 / 600, abs=0.001), "each event has its moment"
    assert all(request.due_ns <= request.sent_ns <= request.answered_ns for request in sent_requests.values())


async def test_events_without_an_answer_are_logged_too(tmp_path):
    workspace = Workspace(tmp_path, free_port(), free_port())
    workspace.write_events(5)
    sender = workspace.sender(100)
    await sender.start()
    assert await sender.wait() == 0
    assert [request.status for request in read_send_log(workspace.send_log).values()] == [0] * 5


async def test_the_request_log_keeps_bodies_and_attributes_unchanged(workspace):
    body = b'{"id": "a",\n "x": "\xc3\xa9"}'
    attributes = "ce-id: a\r\nce-source: /flights\r\nce-type: flight\r\nCE-Time: 2013-01-01T00:00:00Z\r\n"
    assert (await post(workspace.destination_port, DEPARTURES, body, attributes)).startswith(b"HTTP/1.1 204 ")
    envelope = (
        b'{"specversion":"1.0","id":"b","source":"/flights","type":"flight","time":"t","data":{"id":"b"}}'
    )
    await post(workspace.destination_port, ALERTS, envelope)
    await post(workspace.destination_port, CANCELLATIONS, b'{"id":"c"}')
    await post(workspace.destination_port, DEPARTURES, b"not json", "ce-id: d\r\n")
    assert await workspace.counts() == 4
    reader = RequestLogReader(workspace.request_log)
    first, second, third, fourth = reader.read()
    assert (first.path, first.id, first.data, first.well_formed) == (
        DEPARTURES,
        "a",
        {"id": "a", "x": "é"},
        True,
    )
    assert (second.id, second.data, second.well_formed) == ("b", {"id": "b"}, True)
    assert (third.id, third.data, third.well_formed) == ("c", {"id": "c"}, True)
    assert (fourth.data, fourth.well_formed) == (None, False)
    assert list(reader.read()) == [], "each arrival is read once"
    await post(workspace.destination_port, CANCELLATIONS, b'{"id":"e"}')
    await workspace.counts()
    assert [arrival.id for arrival in reader.read()] == ["e"]


async def test_a_half_written_line_is_read_once_it_is_complete(tmp_path):
    file = tmp_path / "requests.log"
    content = b'{"path":"/cancellations","first_ns":1,"answered_ns":2,"headers":{},"bytes":10}\n{"id":"c"}\n'
    reader = RequestLogReader(file)
    for cut_bytes in (5, len(content) - 5, len(content) - 1):
        file.write_bytes(content[:cut_bytes])
        assert list(reader.read()) == []
    file.write_bytes(content)
    assert [arrival.id for arrival in reader.read()] == ["c"]


async def test_counts_are_served_on_one_connection_with_requests_split_anywhere(workspace):
    reader, writer = await asyncio.open_connection("127.0.0.1", workspace.destination_port)
    request = b'POST /cancellations HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\n{"id":"z"}'
    for byte in range(len(request)):
        writer.write(request[byte : byte + 1])
        await writer.drain()
        await asyncio.sleep(0)
    writer.write(request * 3)
    for _ in range(4):
        assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 204 No Content\r\n\r\n"
    writer.close()
    status, page = await get(workspace.destination_port, "/counts")
    assert status == 200
    assert b'"arrivals": 4' in page


def test_the_destination_runs_without_the_libraries_of_hifi() -> None:
    """Its image has none of them."""
    modules = {
        name.partition(".")[0]
        for node in ast.walk(ast.parse(Path(destination.__file__).read_text("utf-8")))
        if isinstance(node, ast.Import | ast.ImportFrom)
        for name in (
            [alias.name for alias in node.names] if isinstance(node, ast.Import) else [node.module or ""]
        )
    }
    assert modules - sys.stdlib_module_names == {"httptools", "uvloop"}
