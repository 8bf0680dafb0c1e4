"""`hifi dead list` shows the newest dead letters, and keeps the data of none."""

import json
from collections.abc import AsyncIterator
from typing import Any, ClassVar

import pytest
from typer.testing import CliRunner

from hifi.delivery.dead_letters.letter import DeadLetter
from hifi_cli.app import command_line
from hifi_cli.commands import dead

DEAD_MS = 1_783_728_060_000


class CountedValue(bytes):
    """The data of a dead letter; counts how many there are in memory."""

    present: ClassVar[int] = 0
    most: ClassVar[int] = 0

    def __init__(self, _: bytes) -> None:
        CountedValue.present += 1
        CountedValue.most = max(CountedValue.most, CountedValue.present)

    def __del__(self) -> None:
        CountedValue.present -= 1


async def ten_letters(*_: Any) -> AsyncIterator[DeadLetter]:
    """Ten dead letters in two partitions; of two that are equally old the one of partition 1 is the newer one."""
    for partition in (1, 0):
        for offset in range(5):
            headers = [("ce_id", f"e{partition}-{offset}".encode())]
            yield DeadLetter(partition, offset, DEAD_MS + offset, b"key", CountedValue(b"data"), headers)


@pytest.fixture(autouse=True)
def topic(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dead, "letters", ten_letters)
    monkeypatch.setattr(CountedValue, "most", 0)


def listed(*options: str) -> str:
    result = CliRunner().invoke(command_line(), ["dead", "list", "--kafka", "127.0.0.1:9", *options])
    assert result.exit_code == 0, result.output
    return result.stdout


def test_the_newest_dead_letters_are_shown_oldest_first_with_the_number_of_all() -> None:
    text = listed("--limit", "3")
    assert [line.split()[0] for line in text.splitlines()[1:4]] == ["1:3", "0:4", "1:4"]
    assert "These are the newest 3 of 10; --limit shows more." in text
    assert "These are" not in listed("--limit", "10")


def test_json_has_all_dead_letters() -> None:
    events = [letter["event"] for letter in json.loads(listed("--json", "--limit", "3"))]
    assert events == [f"e{partition}-{offset}" for offset in range(5) for partition in (0, 1)]


@pytest.mark.parametrize("options", [["--limit", "10"], ["--json"]], ids=" ".join)
def test_the_data_of_dead_letters_is_not_kept(options: list[str]) -> None:
    listed(*options)
    assert 1 <= CountedValue.most <= 2, "the one that is read, and the one before it"
