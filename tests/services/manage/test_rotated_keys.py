"""Two instances of manage, of which one rotates a write key while the other revokes it: without Kafka."""

import asyncio
from collections.abc import Callable, Mapping, Sequence

import pytest

from hifi.control.principals.audit import Audit, AuditEntry, AuditOutcome
from hifi.kafka.topic_follower import Take
from hifi.pipe.issued_key import IssuedKey, IssuedKeys, issued_key, rotated
from hifi.record.record import Record
from hifi.runtime.health import Health
from hifi.runtime.http.problem import Problem
from hifi_manage import control_state
from hifi_manage.control_state import ControlState
from hifi_manage.settings import ManageSettings

KEY = issued_key("k" * 32, "flights", origins=(), expires_us=None, author="ann", at_us=1)
NEW, EXPIRING = rotated(KEY, "n" * 32, 60, "ben", 2)


class SharedTopics:
    """The topics that both instances read and write."""

    records: dict[str, list[Record]]
    before_write: Callable[[], None]
    can_be_read_back: bool

    def reset(self) -> None:
        self.records, self.before_write, self.can_be_read_back = {}, lambda: None, True


TOPICS = SharedTopics()


class SharedTopicReader:
    """Reads topics on demand."""

    def __init__(self, _: str, __: str, handlers: Mapping[str, Take], *, rereads: bool) -> None:
        assert not rereads
        self._handlers = handlers
        self._next = dict.fromkeys(handlers, 0)

    async def start(self) -> None:
        if not TOPICS.can_be_read_back:
            await asyncio.Event().wait()
        await self.catch_up()

    async def catch_up(self) -> None:
        for topic, take in self._handlers.items():
            records = TOPICS.records.get(topic, [])
            for offset in range(self._next[topic], len(records)):
                take(records[offset].key, records[offset].value, offset)
            self._next[topic] = len(records)


class TopicAppender:
    """Appends to topics."""

    def __init__(self, *_: str, health: Health) -> None:
        """Nothing is connected."""

    async def send_and_wait(self, topic: str, _: int, records: Sequence[Record]) -> None:
        if topic.endswith("write-keys"):
            before_write, TOPICS.before_write = TOPICS.before_write, lambda: None
            before_write()
        TOPICS.records.setdefault(topic, []).extend(records)


@pytest.fixture
def settings(monkeypatch: pytest.MonkeyPatch) -> ManageSettings:
    TOPICS.reset()
    monkeypatch.setattr(control_state, "TopicFollower", SharedTopicReader)
    monkeypatch.setattr(control_state, "Producer", TopicAppender)
    return ManageSettings.model_validate(
        {"kafka": "127.0.0.1:9", "stream": "orders", "control": "orders-control"}
    )


def instance(settings: ManageSettings) -> ControlState:
    return ControlState(settings, Health("manage", "manage-0"))


def entry(what: str) -> AuditEntry:
    return AuditEntry("ann", what, f"write-key/{KEY.id}", 1)


def issued(settings: ManageSettings) -> Mapping[str, IssuedKey]:
    """The keys that ingest accepts."""
    issued_keys = IssuedKeys()
    for offset, record in enumerate(TOPICS.records[settings.topics.write_keys]):
        issued_keys.take(record.key, record.value, offset)
    return issued_keys.by_id


def outcomes(settings: ManageSettings) -> list[AuditOutcome]:
    audit = Audit()
    for record in TOPICS.records[settings.control_topics.audit]:
        audit.take(record.key, record.value, 0)
    return [audit_entry.outcome for audit_entry in audit.entries.values()]


async def test_a_rotation_replaces_the_key_and_lets_it_go_on_for_the_overlap(
    settings: ManageSettings,
) -> None:
    state = instance(settings)
    await state.change_keys(entry("issue the write key"), [KEY])
    await state.change_keys(entry("rotate the write key"), [NEW, EXPIRING], rotated_key=KEY)
    assert issued(settings) == {NEW.id: NEW, KEY.id: EXPIRING} == state.keys.by_id


async def test_a_key_that_another_instance_has_revoked_does_not_come_back_by_a_rotation(
    settings: ManageSettings,
) -> None:
    first, second = instance(settings), instance(settings)
    await first.change_keys(entry("issue the write key"), [KEY])
    await second.change_keys(entry("revoke the write key"), [], [KEY.id])
    with pytest.raises(Problem, match="Nothing was changed"):
        await first.change_keys(entry("rotate the write key"), [NEW, EXPIRING], rotated_key=KEY)
    assert issued(settings) == {}
    assert outcomes(settings) == [AuditOutcome.DONE, AuditOutcome.DONE, AuditOutcome.REFUSED]


async def test_whoever_revokes_a_key_wins_over_who_rotates_it_at_the_same_time(
    settings: ManageSettings,
) -> None:
    state = instance(settings)
    await state.change_keys(entry("issue the write key"), [KEY])

    def revoke() -> None:
        TOPICS.records[settings.topics.write_keys].append(Record(KEY.id.encode(), None, []))

    TOPICS.before_write = revoke
    with pytest.raises(Problem, match="No key was issued") as raised:
        await state.change_keys(entry("rotate the write key"), [NEW, EXPIRING], rotated_key=KEY)
    assert raised.value.status == 409
    assert issued(settings) == {} == state.keys.by_id
    assert outcomes(settings) == [AuditOutcome.DONE, AuditOutcome.REFUSED]


async def test_a_key_that_is_stored_is_told_although_it_cannot_be_read_back(
    settings: ManageSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(control_state, "_READ_BACK_S", 0)
    TOPICS.can_be_read_back = False
    state = instance(settings)
    await state.change_keys(entry("issue the write key"), [KEY])
    assert (issued(settings), outcomes(settings)) == ({KEY.id: KEY}, [AuditOutcome.DONE])


async def test_a_rotation_that_cannot_be_read_back_names_the_key_that_nobody_has(
    settings: ManageSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = instance(settings)
    await state.change_keys(entry("issue the write key"), [KEY])
    monkeypatch.setattr(control_state, "_READ_BACK_S", 0)
    TOPICS.can_be_read_back = False
    with pytest.raises(Problem, match=f"revoke {NEW.id}, whose text nobody has") as raised:
        await state.change_keys(entry("rotate the write key"), [NEW, EXPIRING], rotated_key=KEY)
    assert raised.value.status == 503
    assert outcomes(settings) == [AuditOutcome.DONE, AuditOutcome.UNKNOWN]
