"""The entries of the audit that are kept."""

import pytest

from hifi.control.principals.audit import Audit, AuditEntry, AuditOutcome


@pytest.mark.parametrize(("keep", "kept_count"), [(None, 4), (2, 2)])
def test_the_newest_entries_are_kept_each_with_its_outcome(keep: int | None, kept_count: int) -> None:
    audit = Audit(keep)
    entries = [AuditEntry("ann", "declare", f"pipe/p{number}", number) for number in range(4)]
    for entry in entries:
        for audit_entry in (entry, entry.ended(AuditOutcome.DONE, entry.at_us)):
            audit.take(None, audit_entry.record().value, 0)
    assert list(audit.entries) == [entry.id for entry in entries[-kept_count:]]
    assert {audit_entry.outcome for audit_entry in audit.entries.values()} == {AuditOutcome.DONE}
