"""The outcome in the audit of a command that failed: refused only if nothing can have changed."""

import pytest

from hifi.control.action_right import ActionRefused
from hifi.control.principals import principal_store
from hifi.control.principals.audit import Audit, AuditEntry, AuditOutcome
from hifi.control.principals.principal_store import audited
from hifi.kafka.topics import principal_topics
from hifi.record.record import Record
from hifi.runtime.errors import HifiError, Misconfigured, Retryable


class AuditProducer:
    """Takes in the records of the audit."""

    audit = Audit()

    def __init__(self, *_: str) -> None:
        """Nothing is connected."""

    async def start(self) -> None:
        """Do nothing."""

    async def stop(self) -> None:
        """Do nothing."""

    async def send_and_wait(self, _: str, partition: int, records: list[Record]) -> None:
        for record in records:
            self.audit.take(record.key, record.value, partition)


def not_acknowledged() -> Misconfigured:
    """The error of `publish` when Kafka did not acknowledge the pipes in time."""
    try:
        try:
            raise TimeoutError
        except TimeoutError:
            raise Misconfigured("not acknowledged") from None
    except Misconfigured as error:
        return error


REFUSED, UNKNOWN = AuditOutcome.REFUSED, AuditOutcome.UNKNOWN


@pytest.mark.parametrize(
    ("error", "after", "outcome"),
    [
        (Misconfigured("the pipe has problems"), {}, REFUSED),
        (ActionRefused("green is unstable"), {"s": "before"}, REFUSED),
        (Misconfigured("the other colour refuses it"), {"s": "after"}, UNKNOWN),
        (not_acknowledged(), {}, UNKNOWN),
        (Retryable("the second colour does not answer"), {}, UNKNOWN),
        (OSError("no route"), {}, UNKNOWN),
        (HifiError("the end of the action could not be recorded"), {}, UNKNOWN),
    ],
    ids=str,
)
async def test_a_change_that_may_have_taken_effect_is_not_called_refused(
    monkeypatch: pytest.MonkeyPatch, error: Exception, after: dict[str, str], outcome: AuditOutcome
) -> None:
    monkeypatch.setattr(principal_store, "Producer", AuditProducer)
    entry = AuditEntry("ann", "shift requests", "s", 1, "before")

    async def change() -> None:
        async with audited("127.0.0.1:9", principal_topics("orders"), [entry]) as outcomes_by_subject:
            outcomes_by_subject.update(after)
            raise error

    with pytest.raises(type(error)):
        await change()
    ended_entry = AuditProducer.audit.entries[entry.id]
    assert (ended_entry.outcome, ended_entry.after, ended_entry.reason) == (
        outcome,
        after.get("s"),
        str(error),
    )
