"""The file of a backup, its check, and the numbers in its records."""

from types import SimpleNamespace

import orjson
import pytest

from hifi.control.declaration import Declaration
from hifi.control.principals.audit import AuditEntry
from hifi.control.request import Request, RequestKind
from hifi.kafka.topics import ControlTopics, principal_topics
from hifi.pipe.model import Pipe
from hifi.pipe.revision import NextRevision, body_record, pipe_record
from hifi.runtime.errors import Misconfigured
from hifi_cli.backup import backup_file
from hifi_cli.backup.restored_numbers import RestoredNumbers
from hifi_cli.backup.state import State, StateRecord, check, control_topics, effective
from hifi_cli.backup.state_reader import counting_records

PIPE = Pipe.model_validate(
    {
        "pipe": "flights",
        "source": {"keys": [{"env": "KEY"}]},
        "destinations": [{"name": "crm", "url": "http://127.0.0.1:9/"}],
    }
)


def state_record(topic, record, offset=0):
    return StateRecord(topic, 0, offset, record.key.decode(), orjson.loads(record.value))


def state(*records):
    return State("hifi", "hifi-control", 4, 1_700_000_000_123_456, list(records))


def declaration(replaces, offset):
    return state_record("declared", Declaration("flights", PIPE, "ann", 1, replaces).record(), offset)


@pytest.fixture
def full_state():
    return state(
        state_record("pipes", body_record(PIPE, 2)),
        state_record("pipes", pipe_record(PIPE, 1, following=NextRevision(revision=2, share=1000))),
        declaration(-1, 7),
        declaration(7, 9),
    )


def test_a_file_contains_what_was_read(full_state):
    assert backup_file.decode(backup_file.encode(full_state), "file") == full_state
    check(full_state)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda content: content[: content.rindex(b"\n", 0, -1) + 1], "incomplete"),
        (lambda content: content.replace(b"127.0.0.1", b"127.0.0.2"), "changed or damaged"),
        (lambda content: b"".join(content.splitlines(keepends=True)[:2]), "incomplete"),
        (lambda content: content.replace(b'"hifi_backup":1', b'"hifi_backup":2'), "format 2"),
        (lambda _: b"", "not a backup"),
        (lambda _: b'{"pipe": "flights"}\n', "not a backup"),
    ],
)
def test_a_file_that_was_cut_or_changed_is_refused(full_state, change, message):
    with pytest.raises(Misconfigured, match=message):
        backup_file.decode(change(backup_file.encode(full_state)), "file")


@pytest.mark.parametrize(
    ("record", "message"),
    [
        (
            state_record("pipes", pipe_record(PIPE, 1, following=NextRevision(revision=2, share=1))),
            "next revision 2",
        ),
        (StateRecord("pipes", 0, 3, "other", {"pipe": {"pipe": "flights"}}), "'other' of pipes"),
        (StateRecord("declared", 0, 3, "flights", {"pipe": {"no": "pipe"}, "replaces": -1}), "offset 3"),
        (StateRecord("source-positions", 0, 3, "flights;0", {}), "highest"),
        (StateRecord("principals", 0, 3, "ann", {"name": "ann"}), "'ann' of principals"),
        (StateRecord("write-keys", 0, 3, "3f2a", {"id": "3f2a"}), "not the record of a write key"),
    ],
)
def test_a_record_that_cannot_be_restored_is_named(record, message):
    with pytest.raises(Misconfigured, match=message):
        check(state(record))


def test_of_a_compacted_topic_the_newest_record_of_a_key_counts_and_deleted_ones_do_not():
    records = [
        StateRecord("principals", 0, 0, "ann", {"role": "viewer"}),
        StateRecord("principals", 0, 1, "bob", {"role": "viewer"}),
        StateRecord("principals", 0, 2, "ann", {"role": "admin"}),
        StateRecord("principals", 0, 3, "bob", None),
    ]
    assert effective("principals", records) == [records[2]]
    assert effective("audit", records) == records


def test_references_follow_the_records_that_they_name():
    numbers = RestoredNumbers({"flights": 40})
    first, second = declaration(-1, 7), declaration(7, 9)
    assert numbers.declaration(first).value["replaces"] == 40  # what the stream has already
    numbers.declared[7] = 50
    assert numbers.declaration(second).value["replaces"] == 50
    numbers.declared[9] = 51

    entry = state_record("audit", AuditEntry("ann", "declare", "pipe/flights", 1, 7, 9).record())
    renumbered = numbers.referring(entry)
    assert renumbered is not None
    assert (renumbered.value["before"], renumbered.value["after"]) == (50, 51)
    creation = state_record(
        "audit", AuditEntry("ann", "create", "principal/bob", 1, None, {"name": "bob"}).record()
    )
    assert numbers.referring(creation) == creation

    def asked(number):
        return state_record("requests", Request("pipe/flights", number, RequestKind.PAUSE, "ann", 1).record())

    referring_record = numbers.referring(asked(9))
    assert referring_record is not None
    assert referring_record.value["number"] == 51
    assert numbers.referring(asked(3)) is None


def test_a_stream_without_a_control_plane_has_principals_and_audit_in_its_backup() -> None:
    assert control_topics(principal_topics("s")) == {
        "principals": "s-control.principals",
        "audit": "s-control.audit",
    }
    plane_topics = control_topics(ControlTopics("s-control"))
    assert plane_topics.items() >= control_topics(principal_topics("s")).items()
    assert len(plane_topics) == 8


@pytest.mark.parametrize(
    ("topic", "counting"), [("principals", ["bob"]), ("declared", ["ann", "bob"]), ("audit", ["ann", "bob"])]
)
@pytest.mark.parametrize("bad", [b"{", b"", b"\xff"])
def test_a_record_that_cannot_be_read_is_left_out_and_named_and_grants_nothing(topic, counting, bad):
    def record(offset, key, value):
        return SimpleNamespace(partition=0, offset=offset, key=key, value=value)

    records = [
        record(0, b"ann", b'{"role":"viewer"}'),
        record(1, b"bob", b'{"role":"viewer"}'),
        record(2, b"ann", bad),
        record(3, b"\xff", b"{}"),
    ]
    read_records = counting_records(topic, records)
    assert [state_record.key for state_record in read_records.records] == counting
    assert [text.partition(" cannot")[0] for text in read_records.unreadable] == [
        f"the record 'ann' of {topic} at offset 2 of partition 0",
        f"the record '\\\\xff' of {topic} at offset 3 of partition 0",
    ]
