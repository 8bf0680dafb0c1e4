"""Every command that changes something names in the audit who ran it, with what was before and after.

The commands are those of the application: one without a row here fails `test_each_command_has_a_row`.
"""

import asyncio
import json
import os
import pwd
import socket
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import AsyncMock

import pytest
from tests.support.committed import until_readable
from typer.main import get_command
from typer.testing import CliRunner

from hifi.control.principals.audit import AuditEntry, AuditOutcome
from hifi.control.principals.principal_store import audit_entries
from hifi.kafka.producer import Producer
from hifi.kafka.topics import ControlTopics, PrincipalTopics, Topics, principal_topics
from hifi.record.fields import packed
from hifi.record.record import Record
from hifi.runtime.errors import Misconfigured, Retryable
from hifi_cli.app import command_line
from hifi_cli.commands import acl, pipes
from hifi_cli.mesh_state.audited_command import author
from hifi_infra.kafka.stream_setup import prepare

PERSON = f"{pwd.getpwuid(os.getuid()).pw_name}@{socket.gethostname()}"
PIPE = """\
pipe: {name}
source: {{keys: [{{env: KEY_{name}}}]}}
destinations: [{{name: {destination}, url: 'http://127.0.0.1:9/'}}]
"""
READS = {
    "status": "",
    "top": "",
    "minutes": "",
    "lost": "",
    "event": "",
    "watermark": "",
    "wait": "",
    "skew": "",
    "usage": "",
    "report": "",
    "report verify": "",
    "report key": "it writes a file of the user who runs it",
    "sources": "",
    "check": "",
    "diff": "",
    "audit": "",
    "version": "",
    "view": "it reads with a key of the view, as programs do; only uses of principals are in the audit",
    "schema avro": "",
    "acl show": "",
    "topics show": "",
    "upgrade check": "",
    "colour status": "",
    "dead list": "",
    "rollout status": "",
    "destinations list": "",
    "deploy status": "",
    "principal list": "",
    "keys list": "",
    "pipes": "",
    "backup": "it writes a file of the user who runs it",
    "console": "the link is of the principal that asks, and can do what its token can",
    "send": "events are counted by ingest, under their write key",
    "demo": "a mesh of its own, which ends with it",
    "rate": "as `demo`",
    "up": "it starts processes of this machine; `apply` has what it publishes",
    "down": "it ends processes of this machine",
}
"""Commands that change nothing in a stream, with a reason where that is not plain."""
CHANGES = {
    "apply",
    "dead show",
    "dead replay",
    "query",
    "rollout share",
    "rollout promote",
    "rollout abort",
    "rollout pause",
    "rollout resume",
    "rollout force",
    "destinations park",
    "destinations resume",
    "destinations expire",
    "pipes pause",
    "pipes resume",
    "deploy start",
    "deploy abort",
    "deploy pause",
    "deploy resume",
    "deploy force",
    "principal create",
    "principal revoke",
    "principal restore",
    "keys issue",
    "keys rotate",
    "keys revoke",
    "restore",
}
"""Commands that this module runs."""
ELSEWHERE = {
    "acl apply": "tests/cli/commands/test_audited_commands.py::test_created_access_entries_are_in_the_audit",
    "colour shift": "tests/infra/colours/test_audit.py",
    "colour split": "tests/infra/colours/test_audit.py",
    "colour drain": "tests/infra/colours/test_audit.py",
    "colour sleep": "tests/infra/colours/test_audit.py",
    "colour wake": "tests/infra/colours/test_audit.py",
    "step compare": "tests/services/state/test_compare_command.py",
    "step explain": "tests/services/state/test_planted_loss.py",
}
"""Commands that change something or read event data, and the test of their entries."""
ROOT = Path(__file__).parents[3]


def commands(command: Any, path: tuple[str, ...] = ()) -> Iterator[str]:
    """Every command of the application."""
    below = getattr(command, "commands", {})
    if path and (not below or command.invoke_without_command):
        yield " ".join(path)
    for name, subcommand in below.items():
        yield from commands(subcommand, (*path, name))


def test_each_command_has_a_row() -> None:
    assert sorted(commands(get_command(command_line()))) == sorted([*READS, *CHANGES, *ELSEWHERE])
    for test_id in ELSEWHERE.values():
        file, _, name = test_id.partition("::")
        assert name in (ROOT / file).read_text()


class AuditedStream:
    """A stream, with a control plane or without, in which commands run."""

    def __init__(self, kafka: str, folder: Path, *, control: bool) -> None:
        self.kafka, self.folder = kafka, folder
        self.topics = Topics(f"s{uuid.uuid4().hex[:8]}")
        name = f"{self.topics.stream}-control"
        self.control: PrincipalTopics = (
            ControlTopics(name) if control else principal_topics(self.topics.stream)
        )
        asyncio.run(prepare(kafka, self.topics, 1, self.control))
        self.seen: set[str] = set()
        self.ran: set[str] = set()

    def declare(self, *destinations: str) -> Path:
        """Write the pipe `p`, or more, with these destinations."""
        folder = self.folder / f"{self.topics.stream}-pipes"
        folder.mkdir(exist_ok=True)
        for name, destination in zip(("p", "q"), destinations, strict=False):
            (folder / f"{name}.yaml").write_text(PIPE.format(name=name, destination=destination))
        return folder

    def run(
        self,
        command: str,
        *arguments: object,
        status: int = 0,
        outcome: AuditOutcome = AuditOutcome.DONE,
    ) -> list[AuditEntry]:
        """Run a command; returns its new entries in the audit, without those before it."""
        control = {"HIFI_CONTROL": self.control.control} if isinstance(self.control, ControlTopics) else {}
        options = ["--kafka", self.kafka, "--stream", self.topics.stream]
        result = CliRunner().invoke(
            command_line(), [*command.split(), *map(str, arguments), *options], env=control
        )
        assert result.exit_code == status, result.output
        self.ran.add(command)
        asyncio.run(until_readable(self.kafka, self.control.audit))
        entries = asyncio.run(audit_entries(self.kafka, self.control))
        new_entries = [entry for entry in entries if entry.id not in self.seen]
        self.seen |= {entry.id for entry in new_entries}
        assert new_entries, f"`hifi {command}` leaves no entry in the audit"
        assert {entry.principal for entry in new_entries} == {PERSON}
        assert {entry.outcome for entry in new_entries} == {outcome}
        return new_entries

    def write(self, topic: str, record: Record) -> None:
        async def write() -> None:
            producer = Producer(self.kafka, "test")
            await producer.start()
            await producer.send_and_wait(topic, 0, [record])
            await producer.stop()

        asyncio.run(write())


def entry_fields(entries: list[AuditEntry]) -> tuple[str, str, Any, Any]:
    """The fields of the only entry."""
    [entry] = entries
    return entry.what, entry.subject, entry.before, entry.after


def test_each_change_is_in_the_audit_with_before_and_after(
    kafka: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    stream = AuditedStream(kafka, tmp_path, control=False)
    quick = ("--quick",)
    apply_entry = entry_fields(stream.run("apply", stream.declare("d"), *quick))
    assert apply_entry == ("apply", "pipe/p", None, 1)

    for share, rollout in ((10, "abort"), (20, "promote")):
        destination = f"d{share}"
        stream.run("apply", stream.declare(destination), *quick, "--share", share)
        share_entry = entry_fields(stream.run("rollout share", "p", 50))
        following = 2 if rollout == "abort" else 3
        rolling = f"revision 1, 50 % revision {following}"
        assert share_entry[1:] == ("pipe/p", f"revision 1, {share} % revision {following}", rolling)
        end_entry = entry_fields(stream.run(f"rollout {rollout}", "p"))
        current = 1 if rollout == "abort" else following
        assert end_entry[1:] == ("pipe/p", rolling, f"revision {current}")

    states = [
        entry_fields(stream.run(f"destinations {verb}", "p", "d20"))[1:]
        for verb in ("park", "expire", "resume")
    ]
    subject = "destination/p/d20"
    assert states == [
        (subject, "active", "parked"),
        (subject, "parked", "expiring"),
        (subject, "expiring", "active"),
    ]
    pauses = [entry_fields(stream.run(f"pipes {verb}", "p"))[1:] for verb in ("pause", "resume")]
    assert pauses == [("pipe/p", "active", "paused"), ("pipe/p", "paused", "active")]

    stream.write(stream.topics.dead_letter, dead_letter())
    assert entry_fields(stream.run("dead show", "0:0", "--value")) == (
        "read event data",
        "pipe/p",
        None,
        {"dead_letters": ["0:0"]},
    )
    count = "select count(*) from dead_letter"
    assert entry_fields(stream.run("query", count)) == (
        "read event data",
        f"stream/{stream.topics.stream}",
        None,
        {"query": count},
    )
    assert entry_fields(stream.run("dead replay", "--all"))[:2] == ("replay dead letters", "pipe/all")

    create_entry = entry_fields(
        stream.run("principal create", "ann", "--role", "viewer", "--token-file", tmp_path / "t")
    )
    assert create_entry[:3] == ("create", "principal/ann", None)
    assert create_entry[3]["role"] == "viewer"
    replace_entry = entry_fields(
        stream.run("principal create", "ann", "--role", "admin", "--token-file", tmp_path / "u")
    )
    assert (replace_entry[2]["role"], replace_entry[3]["role"]) == ("viewer", "admin")
    revoke_entry = entry_fields(stream.run("principal revoke", "ann"))
    assert (revoke_entry[:2], revoke_entry[2]["role"]) == (("revoke", "principal/ann"), "admin")

    person = "principal/oidc:bob"
    assert entry_fields(stream.run("principal revoke", "oidc:bob"))[:2] == ("revoke", person)
    assert entry_fields(stream.run("principal restore", "oidc:bob"))[1] == person

    issue_entry = entry_fields(stream.run("keys issue", "p", "--key-file", tmp_path / "key"))
    assert (issue_entry[0], issue_entry[2], issue_entry[3]["pipe"]) == ("issue the write key", None, "p")
    key = issue_entry[1].removeprefix("write-key/")
    rotated = {
        entry.subject: (entry.what, entry.before, entry.after)
        for entry in stream.run("keys rotate", key, "--key-file", tmp_path / "next")
    }
    action, before, after = rotated.pop(issue_entry[1])
    assert (action, before["expires_us"]) == ("rotate the write key", None)
    assert after["expires_us"] is not None
    [(subject, (_, before, after))] = rotated.items()
    assert (before, after["pipe"]) == (None, "p")
    end_entry = entry_fields(stream.run("keys revoke", subject.removeprefix("write-key/")))
    assert (end_entry[:2], end_entry[2]["pipe"], end_entry[3]) == (
        ("revoke the write key", subject),
        "p",
        None,
    )

    controlled = AuditedStream(kafka, tmp_path, control=True)
    declared = entry_fields(controlled.run("apply", controlled.declare("d"), *quick))
    assert declared[:3] == ("declare by file", "pipe/p", None)
    for kind in ("pause", "resume", "force", "abort"):
        request_entry = entry_fields(controlled.run(f"rollout {kind}", "p"))
        assert request_entry[:2] == (f"{kind} the rollout", "pipe/p")
        assert request_entry[2] == request_entry[3] == declared[3], "the number of the declaration"
    assert entry_fields(controlled.run("deploy start", "normalize", "installed"))[1:] == (
        "service/normalize",
        None,
        "installed",
    )
    for kind in ("pause", "resume", "force", "abort"):
        request_entry = entry_fields(controlled.run(f"deploy {kind}", "normalize"))
        assert request_entry[:2] == (f"{kind} the deployment", "service/normalize")
        assert request_entry[3] == f"asked to {kind}"

    backup = tmp_path / "backup.ndjson"
    options = ["--kafka", kafka, "--stream", stream.topics.stream]
    assert CliRunner().invoke(command_line(), ["backup", str(backup), *options]).exit_code == 0
    restored_stream = AuditedStream(kafka, tmp_path, control=False)
    restored = restored_stream.run("restore", backup)[-1]
    assert (restored.what, restored.subject) == ("restore", f"stream/{restored_stream.topics.stream}")
    assert stream.ran | controlled.ran | restored_stream.ran == CHANGES


def test_a_refused_change_is_in_the_audit_and_the_command_lists_all(
    kafka: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = AuditedStream(kafka, tmp_path, control=False)
    stream.run("apply", stream.declare("d"), "--quick")
    for error, outcome in (
        (Misconfigured("it may not"), AuditOutcome.REFUSED),
        (Retryable("Kafka is away"), AuditOutcome.UNKNOWN),
    ):
        monkeypatch.setattr(pipes, "publish", AsyncMock(side_effect=error))
        [entry] = stream.run("pipes pause", "p", status=1, outcome=outcome)
        assert (entry.before, entry.after, entry.reason) == ("active", None, str(error))
    options = ["--kafka", kafka, "--stream", stream.topics.stream]
    printed_entries = json.loads(CliRunner().invoke(command_line(), ["audit", "--json", *options]).stdout)
    entries = asyncio.run(audit_entries(kafka, stream.control))
    assert len(printed_entries) == 3
    assert printed_entries == [json.loads(json.dumps(entry.json())) for entry in entries]


def test_created_access_entries_are_in_the_audit(
    kafka: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The Kafka of this test has no authorizer."""
    monkeypatch.setattr(acl, "create_acls", AsyncMock(return_value=3))
    stream = AuditedStream(kafka, tmp_path, control=False)
    acl_entry = entry_fields(stream.run("acl apply"))
    assert acl_entry == (
        "create access control entries",
        f"acls/{stream.topics.stream}",
        None,
        {"created": 3},
    )
    no_topics = ["--kafka", kafka, "--stream", f"s{uuid.uuid4().hex[:8]}"]
    assert CliRunner().invoke(command_line(), ["acl", "apply", *no_topics]).exit_code == 0


def dead_letter() -> Record:
    """A dead letter of egest for the pipe `p`, as Kafka has it."""
    headers = packed(
        {
            "hifi_pipe": b"p",
            "hifi_revision": b"1",
            "hifi_revision_offset": b"0",
            "hifi_accepted": b"1764000000000000",
            "hifi_minute": b"29400000",
            "hifi_seq": b"00000000000000ab:1",
            "hifi_in": b"1764000000000001",
            "ce_id": b"1",
            "hifi_service": b"normalize",
            "hifi_reason": b"schema",
        }
    )
    return Record(b"k", b"{}", headers)


def test_the_environment_does_not_change_the_author(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("LOGNAME", "USER", "LNAME", "USERNAME"):
        monkeypatch.setenv(name, "somebody-else")
    assert author() == PERSON
