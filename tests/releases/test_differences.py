"""This release and the candidate before it differ in a header field, a key, topics and settings, and in no other way.

The tests that mix both releases mean something only because they differ, and an upgrade only does what is listed.
"""

import asyncio
import json
import os
import re
import subprocess
import sys
import uuid
from pathlib import Path
from typing import Any

import pytest
from tests.releases.neighbours import AFTER, FIRST_CANDIDATE, release_text, write_release, write_release_after
from typer.testing import CliRunner

from hifi.kafka.admin import topic_names
from hifi.kafka.topics import ControlTopics, Topics
from hifi_cli.app import command_line
from hifi_cli.upgrade.setting_changes import known_settings
from hifi_infra.kafka.stream_setup import prepare
from hifi_infra.mesh.release import release_environment

ROOT = Path(__file__).parents[2]
FACTS = """
import json
from hifi.delivery.ack_report import PartitionAcks, RequestTotals
from hifi.kafka.security.access import access
from hifi.kafka.topics import ControlTopics, Topics
from hifi.record.receipt import RECEIPT_FIELDS
report = PartitionAcks(1).report("ingest", {}, RequestTotals({}, {}, {}, []), {}, {}, closed=False)
needs = access(Topics("s"), ControlTopics("c"))
print(json.dumps({
    "receipt": RECEIPT_FIELDS,
    "report": sorted(json.loads(report)),
    "topics": sorted(topic.name for topic in (*Topics("s").all(), *ControlTopics("c").all())),
    "access": {service: [list(part) for part in (need.reads, need.writes)] for service, need in needs.items()},
}))
"""
DAYS_30_MS = 30 * 24 * 3600 * 1000
SETUP = """
import asyncio, sys
from hifi.kafka.topics import ControlTopics, Topics
from hifi_infra.kafka.stream_setup import prepare
asyncio.run(prepare(sys.argv[1], Topics(sys.argv[2]), 2, ControlTopics(sys.argv[3])))
"""
WRITE = """
import json
from hifi.delivery.ack_report import PartitionAcks, RequestTotals
from hifi.record.receipt import receipt_text, request_text
receipt = receipt_text(b"delivered", b"crm", b"enriched", 7, 0, 1, request_text(200, 5, 6), 0, b"", b"")
acks = PartitionAcks(10)
acks.add("p", 3, 0, 4)
report = acks.report("ingest", acks.take(), RequestTotals({202: 5}, {}, {}, []), {}, {}, closed=False)
print(json.dumps([receipt.decode(), report.decode()]))
"""
READ = """
import json, sys
from hifi.record.headers import HOP, IDENTITY, RECEIPT
from hifi.record.receipt import OUTCOME_AT, STATUS_AT, split_receipt
from hifi_observe.ledger.ack_report import parse
receipt, report = json.loads(sys.argv[1])
texts = split_receipt([(IDENTITY, b""), (HOP, b""), (RECEIPT, receipt.encode())])
read = parse(report.encode())
print(json.dumps([texts[OUTCOME_AT].decode(), texts[STATUS_AT].decode(), read.epoch, read.ranges, read.answers]))
"""
ADDED = """
import json
from hifi.kafka.producer import _with_added_key
from hifi.record.raw_record import RawRecords
from hifi.record.record import Record
from hifi.runtime.release import VERSION
events = RawRecords(1, 0)
events.add(b"k", b"{}", [], b"p", 0, ("hifi_hop", b""))
[report] = _with_added_key("s.accepted", [Record(b"0", b'{"epoch":1}', [])])
print(json.dumps([VERSION, [name for name, _ in events.records[0].headers], json.loads(report.value)]))
"""


@pytest.fixture(scope="module")
def candidate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The packages of 0.1.0rc1, with those of the command and of infrastructure."""
    folder = tmp_path_factory.mktemp("candidate")
    write_release(FIRST_CANDIDATE, folder, ("libs", "connectors", "services", "infra"))
    return folder


def run(folder: Path, code: str, *arguments: str) -> str:
    """The output of a program that imports the packages of a folder."""
    environment = release_environment(str(folder), dict(os.environ)) | {"HIFI_COMPILED": "0"}
    shared_folders = (str(folder / name) for name in ("libs", "infra"))
    environment["PYTHONPATH"] = os.pathsep.join([*shared_folders, environment["PYTHONPATH"]])
    command = [sys.executable, "-c", code, *arguments]
    return subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE, text=True).stdout


def test_this_release_adds_a_header_field_a_key_topics_and_settings_and_takes_none_away_but_renamed_ones(
    candidate: Path,
) -> None:
    facts_before: dict[str, Any] = json.loads(run(candidate, FACTS))
    now: dict[str, Any] = json.loads(run(ROOT, FACTS))
    assert now["receipt"] == [*facts_before["receipt"], "hifi_release"]
    assert set(now["report"]) - set(facts_before["report"]) == {"release"}
    assert set(facts_before["report"]) <= set(now["report"])
    added_topics = {"s.certificates", "s.watermarks", "s.folds", "s.state-leader"}
    added_topics |= {"c.certificates", "c.step-times"}
    assert set(facts_before["topics"]) < set(now["topics"])
    assert set(now["topics"]) - set(facts_before["topics"]) == added_topics
    settings = set(release_text(FIRST_CANDIDATE, "cli/hifi_cli/upgrade/settings.txt").split())
    changelog = (ROOT / "CHANGELOG.md").read_text("utf-8")
    renamed_settings = set(re.findall(r"`(HIFI_\w+)`(?: is)?\s+`HIFI_", changelog))
    assert settings - known_settings() - renamed_settings == set()
    assert {"HIFI_CERTIFICATE_DAYS", "HIFI_OBSERVE_WATERMARK_INTERVAL_S"} <= known_settings() - settings
    added_keys = {
        name
        for service, sections in facts_before["access"].items()
        for old_names, new_names in zip(sections, now["access"][service], strict=True)
        for name in set(new_names) - set(old_names)
    }
    assert set(now["access"]) - set(facts_before["access"]) == {"state", "view"}
    assert added_keys <= added_topics


def test_the_release_after_this_one_writes_a_header_and_a_key_more(tmp_path: Path) -> None:
    write_release_after(tmp_path)
    version, headers, report = json.loads(run(tmp_path, ADDED))
    assert version == AFTER
    assert headers == ["hifi", "hifi_hop", "hifi_added"]
    assert report == {"epoch": 1, "added": 1}


def test_each_release_reads_the_receipts_and_reports_that_the_other_writes(candidate: Path) -> None:
    """Without a mesh: the tests that mix instances take minutes."""
    expected = ["delivered", "200", "000000000000000a", [["p", 3, 0, 4]], {"202": 5}]
    written_texts = [run(folder, WRITE) for folder in (candidate, ROOT)]
    assert written_texts[0] != written_texts[1]
    for folder in (candidate, ROOT):
        for texts in written_texts:
            assert json.loads(run(folder, READ, texts)) == expected


def test_the_check_lists_the_topics_that_this_release_adds_and_nothing_else(
    kafka: str, candidate: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Setup of the candidate made the stream; the check of this release leaves it as it is, and its setup adds them."""
    for name in ("HIFI_KAFKA", "HIFI_STREAM"):
        monkeypatch.delenv(name, raising=False)
    stream = f"s{uuid.uuid4().hex[:8]}"
    control = ControlTopics(f"{stream}-control")
    monkeypatch.setenv("HIFI_CONTROL", control.control)
    run(candidate, SETUP, kafka, stream, control.control)
    topics_before = asyncio.run(topic_names(kafka, stream))

    code, rows = checked(kafka, stream)
    assert code == 3
    names = ("certificates", "watermarks", "folds", "state-leader")
    added_topics = {*(f"{stream}.{name}" for name in names), control.certificates, control.step_times}
    retention = ("topic setting", f"{stream}.replays", f"retention.ms={DAYS_30_MS}", "you")
    changes = {(row["kind"], row["name"], row["now"], row["made_by"]) for row in rows}
    assert changes == {retention, *(("topic", name, "", "setup") for name in added_topics)}
    assert all(row["services"] for row in rows)
    assert asyncio.run(topic_names(kafka, stream)) == topics_before, "nothing was created"

    asyncio.run(prepare(kafka, Topics(stream), 2, control))
    code, rows = checked(kafka, stream)
    assert (code, [row["name"] for row in rows]) == (3, [f"{stream}.replays"])


def checked(kafka: str, stream: str) -> tuple[int, list[dict[str, Any]]]:
    command = ["upgrade", "check", "--kafka", kafka, "--stream", stream, "--json"]
    result = CliRunner().invoke(command_line(), command)
    assert result.exit_code in (0, 3), result.output
    return result.exit_code, json.loads(result.stdout)
