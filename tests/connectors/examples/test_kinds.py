"""Kinds come from entry points; wrong settings are reported at their line, and missing ones delay deliveries."""

from dataclasses import replace
from pathlib import Path

import pytest
from tests.support.egest.egest_stream import EgestStream, pipe_to, running_egest, texts, until

from hifi.check.pipe_check import check_folder
from hifi.delivery import installed_kinds as installed
from hifi.delivery import several_logs
from hifi.pipe.limit_check import refusals
from hifi.pipe.limits import pipe_limits
from hifi.pipe.model import Pipe
from hifi.pipe.registry import publish, stream_record
from hifi.record.headers import OUTCOME, REASON

SETTINGS = "settings: {database: /tmp/x.db, table: orders}"
PIPE = """\
pipe: orders
source:
  keys: [{env: KEY}]
destinations:
  - name: rows
    kind: sqlite
"""


def problems(folder: Path, destination: str) -> list[tuple[int, str, str]]:
    (folder / "orders.yaml").write_text(PIPE + destination)
    found_problems = check_folder(folder, "micro-batch", sql=False)[1]
    return [(problem.line, problem.where, problem.message) for problem in found_problems]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "pipes").mkdir()
    return tmp_path / "pipes"


def test_settings_of_a_kind_are_checked_at_their_line(sqlite_kind: Path, folder: Path) -> None:
    assert problems(folder, f"    {SETTINGS}\n") == []
    found_problems = problems(
        folder, "    settings:\n      database: x.db\n      table: a b\n      colour: red\n"
    )
    assert [(line, key_path) for line, key_path, _ in found_problems] == [
        (9, "destinations[0].settings.table"),
        (10, "destinations[0].settings.colour"),
    ]
    assert problems(folder, "    settings: {database: x.db}\n") == [
        (7, "destinations[0].settings.table", "is missing")
    ]


def test_keys_of_http_are_unknown_to_other_kinds(sqlite_kind: Path, folder: Path) -> None:
    [(line, key_path, _)] = problems(folder, f"    {SETTINGS}\n    url: http://there\n")
    assert (line, key_path) == (8, "destinations[0].url")


def test_a_wrong_transform_is_found(sqlite_kind: Path, folder: Path) -> None:
    [(line, _, message)] = problems(folder, f"    {SETTINGS}\n    transform: '{{'\n")
    assert line == 5
    assert "is not JMESPath" in message


def test_a_kind_that_is_not_installed_is_an_error_that_says_what_is(folder: Path) -> None:
    installed.installed_kind.cache_clear()
    (folder / "orders.yaml").write_text(PIPE.replace("sqlite", "tape"))
    [problem] = check_folder(folder, "micro-batch", sql=False)[1]
    assert (problem.line, problem.where) == (6, "destinations[0].kind")
    assert "the kind 'tape' is not installed; installed here: http" in problem.message


def test_variables_of_hifi_are_refused_as_secrets_in_settings(sqlite_kind: Path, folder: Path) -> None:
    found_problems = problems(
        folder, "    settings: {database: x, table: orders, password: {env: HIFI_KAFKA}}\n"
    )
    assert any("HIFI_KAFKA is not allowed as a secret" in message for _, _, message in found_problems)


def test_a_kind_of_sources_that_is_not_installed_is_an_error_that_says_what_is(folder: Path) -> None:
    source = "source: {kind: tape, drive: 1}"
    (folder / "orders.yaml").write_text(
        f"pipe: orders\n{source}\ndestinations:\n  - {{name: d, url: 'http://x/'}}\n"
    )
    [problem] = check_folder(folder, "micro-batch", sql=False)[1]
    assert (problem.line, problem.where) == (2, "source.kind")
    assert "the kind 'tape' is not installed; installed here: debezium, http, kafka" in problem.message


def test_keys_of_a_kind_of_sources_are_checked_at_their_line(sqlite_kind: Path, folder: Path) -> None:
    source = "source:\n  kind: sqlite\n  database: /x.db\n  table: a b\n  colour: red\n"
    (folder / "orders.yaml").write_text(
        f"pipe: orders\n{source}destinations:\n  - {{name: d, url: 'http://x/'}}\n"
    )
    problems = check_folder(folder, "micro-batch", sql=False)[1]
    assert [(problem.line, problem.where) for problem in problems] == [
        (5, "source.table"),
        (6, "source.colour"),
    ]


def test_secrets_of_a_source_whose_kind_is_not_installed_are_subject_to_the_limits() -> None:
    source = {"kind": "tape", "login": {"password": {"env": "HIFI_KAFKA"}}}
    destinations = [{"name": "d", "url": "http://127.0.0.1:9/"}]
    pipe = Pipe.model_validate({"pipe": "orders", "source": source, "destinations": destinations})
    assert [path for path, _ in refusals(pipe, pipe_limits())] == [("source", "login", "password")]


def test_a_source_whose_kind_is_not_installed_is_published_as_it_is_declared() -> None:
    source = {"kind": "tape", "drive": 1, "backfill": {"rate": "5/s"}}
    destinations = [{"name": "d", "url": "http://127.0.0.1:9/"}]
    pipe = Pipe.model_validate({"pipe": "orders", "source": source, "destinations": destinations})
    read_back = Pipe.model_validate_json(pipe.model_dump_json(exclude_defaults=True, by_alias=True))
    assert read_back == pipe
    assert read_back.model_dump(exclude_defaults=True)["source"]["drive"] == 1


async def test_while_a_kind_is_not_installed_deliveries_go_to_the_retrier(stream: EgestStream) -> None:
    declared_pipe = pipe_to("flights", {"name": "d", "kind": "tape"})
    async with running_egest(stream, declared_pipe) as egest:
        await stream.send(3)
        receipts = await stream.receipts(3)
        await until(lambda: any("tape" in warning for warning in egest.service.health.warnings.values()))
    assert {(receipt[OUTCOME], receipt[REASON]) for receipt in receipts} == {("retry", "unusable")}
    waiting = await stream.read(stream.topics.retry_in(stream.topics.tiers[0]))
    assert len([texts(record) for record in waiting]) == 3


async def test_in_a_colour_deliveries_to_a_kind_that_would_lose_events_wait(
    stream: EgestStream, sqlite_kind: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    incapable_kind = replace(installed.installed_kind("sqlite"), several_logs=False)
    monkeypatch.setattr(several_logs, "installed_kind", lambda _name: incapable_kind)
    database = tmp_path / "rows.db"
    settings = {"database": str(database), "table": "orders"}
    declared_pipe = pipe_to("flights", {"name": "d", "kind": "sqlite", "settings": settings})
    await publish(stream.kafka, stream.topics, [stream_record(stream.partitions, coloured=True)])
    stream.version += 1
    async with running_egest(stream, declared_pipe) as egest:
        await stream.send(3)
        receipts = await stream.receipts(3)
        warnings = egest.service.health.warnings.values()
        await until(lambda: any("the stream has two colours" in warning for warning in warnings))
    assert {(receipt[OUTCOME], receipt[REASON]) for receipt in receipts} == {("retry", "unusable")}
    waiting = await stream.read(stream.topics.retry_in(stream.topics.tiers[0]))
    assert len(waiting) == 3
    assert not database.exists()
