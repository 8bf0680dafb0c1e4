"""`hifi colour` names in the audit who changed the colours, with both as they were before and after."""

import asyncio
from typing import Any

import pytest
from tests.support.colours.coloured_kafka import ColoursUnderTest

from hifi.control.principals.audit import AuditOutcome
from hifi.control.principals.principal_store import audit_entries
from hifi.control.verdict import Condition
from hifi.delivery.colours import ColourState
from hifi.kafka.topics import principal_topics
from hifi_cli.commands import colour
from hifi_cli.mesh_state.audited_command import author
from hifi_infra.colours.operations import ColourOperations

BEFORE = {"blue": "active 100 %", "green": "idle 0 %"}


async def entries(colours: ColoursUnderTest) -> list[tuple[Any, ...]]:
    """The entries of the audit, without times."""
    audit = await audit_entries(colours.kafka, principal_topics(colours.stream))
    return [
        (entry.principal, entry.what, entry.subject, entry.before, entry.after, entry.outcome)
        for entry in audit
    ]


async def run(
    colours: ColoursUnderTest, monkeypatch: pytest.MonkeyPatch, command: Any, *arguments: Any, **options: Any
) -> None:
    """Run a command of `hifi colour` on the colours, in a thread with an event loop of its own."""
    monkeypatch.setattr(colour, "_operations", lambda *_, **__: colours.operations(actor=author()))
    await asyncio.to_thread(command, *arguments, **options)


async def test_a_shift_and_a_split_are_in_the_audit(
    colours: ColoursUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    await colours.judge(blue=Condition.STABLE, green=Condition.STABLE)
    await run(colours, monkeypatch, colour.shift, "green")
    await run(colours, monkeypatch, colour.split)
    shifted_shares = {"blue": "idle 0 %", "green": "active 100 %"}
    split = {"blue": "active 50 %", "green": "active 50 %"}
    done_outcome = AuditOutcome.DONE
    assert await entries(colours) == [
        (author(), "shift requests", "colours", BEFORE, shifted_shares, done_outcome),
        (author(), "split requests", "colours", shifted_shares, split, done_outcome),
    ]


async def test_a_refused_action_is_in_the_audit(
    colours: ColoursUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    await colours.judge(blue=Condition.UNSTABLE, green=Condition.STABLE)
    with pytest.raises(Exception, match="1"):  # the exit status
        await run(colours, monkeypatch, colour.shift, "green")
    assert await entries(colours) == [
        (author(), "shift requests", "colours", BEFORE, BEFORE, AuditOutcome.REFUSED)
    ]


async def test_a_colour_that_drains_falls_asleep_or_wakes_is_in_the_audit(
    colours: ColoursUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The effects of the actions are tested in test_operations.py."""
    state = {"drain": ColourState.DRAINING, "sleep": ColourState.ASLEEP, "wake": ColourState.IDLE}

    def operation(verb: str) -> Any:
        async def change(_: ColourOperations, name: str, *__: Any) -> None:
            await colours.write(**{name: state[verb]})

        return change

    for verb in state:
        monkeypatch.setattr(ColourOperations, verb, operation(verb))
        await run(colours, monkeypatch, getattr(colour, verb), "green")
    assert [(entry[0], entry[1], entry[4]["green"]) for entry in await entries(colours)] == [
        (author(), "drain green", "draining 0 %"),
        (author(), "sleep green", "asleep 0 %"),
        (author(), "wake green", "idle 0 %"),
    ]
