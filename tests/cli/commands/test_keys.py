"""`hifi keys rotate` beside somebody who revokes the key: without Kafka."""

import contextlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from unittest.mock import MagicMock

import pytest
from typer.testing import CliRunner, Result

from hifi.kafka.topic_follower import Take
from hifi.pipe.issued_key import IssuedKey, IssuedKeys, issued_key, key_revocation
from hifi.record.record import Record
from hifi.runtime.clock import now_us
from hifi_cli.app import command_line
from hifi_cli.commands import keys
from hifi_cli.mesh_state.target import Target

KEY = issued_key("k" * 32, "flights", origins=(), expires_us=None, author="ann", at_us=1)


class KeyTopics:
    """The topics of the write keys of two colours."""

    def __init__(self) -> None:
        self.records: dict[str, list[Record]] = {"blue": [KEY.record()], "green": [KEY.record()]}
        self.before_write: Callable[[], object] = lambda: None

    async def read(self, kafka: str, _: str, handlers: Mapping[str, Take]) -> None:
        take = next(take for topic, take in handlers.items() if topic.endswith("write-keys"))
        for offset, record in enumerate(self.records[kafka]):
            take(record.key, record.value, offset)

    async def write(self, kafka: str, _: str, *writes: tuple[str, Sequence[Record]]) -> None:
        self.before_write()
        for _topic, records in writes:
            self.records[kafka] += records

    def revoke(self, kafka: str) -> None:
        self.records[kafka].append(key_revocation(KEY.id))

    def issued(self, kafka: str) -> Mapping[str, IssuedKey]:
        """The keys that ingest accepts."""
        issued_keys = IssuedKeys()
        for offset, record in enumerate(self.records[kafka]):
            issued_keys.take(record.key, record.value, offset)
        return issued_keys.by_id


@pytest.fixture
def topics(monkeypatch: pytest.MonkeyPatch) -> KeyTopics:
    key_topics = KeyTopics()
    targets = {name: MagicMock(Target, kafka=name) for name in key_topics.records}
    for target in targets.values():
        target.topics.write_keys = "orders.write-keys"
    audit = MagicMock()
    audit.audited = lambda *_: contextlib.nullcontext({})
    monkeypatch.setattr(keys, "kafka_targets", lambda *_: targets)
    monkeypatch.setattr(keys, "audit_topics", lambda *_: audit)
    monkeypatch.setattr(keys, "read_topics", key_topics.read)
    monkeypatch.setattr(keys, "write_records", key_topics.write)
    return key_topics


def rotate(folder: Path) -> Result:
    return CliRunner().invoke(command_line(), ["keys", "rotate", KEY.id, "--key-file", str(folder / "new")])


def test_a_rotated_key_goes_on_for_the_overlap_in_both_colours(topics: KeyTopics, tmp_path: Path) -> None:
    assert rotate(tmp_path).exit_code == 0
    for colour in topics.records:
        issued = topics.issued(colour)
        assert len(issued) == 2
        assert (issued[KEY.id].expires_us or 0) > now_us()


@pytest.mark.parametrize("colour", ["blue", "green"])
def test_a_key_that_is_revoked_while_it_is_rotated_stays_revoked(
    topics: KeyTopics, tmp_path: Path, colour: str
) -> None:
    """The rotation has read the key and writes it after the revocation."""

    def revoke_once() -> None:
        topics.before_write = lambda: None
        topics.revoke(colour)

    topics.before_write = revoke_once
    result = rotate(tmp_path)
    assert (result.exit_code, "somebody revoked" in result.stderr) == (1, True)
    assert [topics.issued(name) for name in topics.records] == [{}, {}]


def test_a_key_that_was_revoked_in_one_colour_only_is_not_rotated(topics: KeyTopics, tmp_path: Path) -> None:
    """The other colour did not answer when it was revoked."""
    topics.revoke("green")
    result = rotate(tmp_path)
    assert (result.exit_code, f"hifi keys revoke {KEY.id}" in " ".join(result.stderr.split())) == (1, True)
    assert KEY.id not in topics.issued("green")
