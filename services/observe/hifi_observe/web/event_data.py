"""Who may read the data of events that observe shows, and an audit entry for each time that somebody does."""

from collections.abc import Mapping, Sequence
from typing import Any

from hifi.control.principals.audit import AuditEntry, AuditOutcome
from hifi.control.principals.audit_log import AuditLog
from hifi.control.principals.gate import Gate
from hifi.control.principals.principal import Principal, Role
from hifi.runtime.clock import now_us


class EventDataReaders:
    """Shows the data of dead letters to data viewers and above.

    Args:
        gate: that let the principals in.
        audit: gets an entry before data is shown.
    """

    def __init__(self, gate: Gate, audit: AuditLog) -> None:
        self._gate = gate
        self._audit = audit

    async def shown(
        self, principal: Principal, pipe: str, dead_letters: Sequence[Mapping[str, Any]]
    ) -> list[dict[str, Any]]:
        """Dead letters as a principal may see them: `withheld` says that their data is left out.

        Raises:
            Problem: 503, the audit cannot be written, or the principals were not read lately.
        """
        withheld = not principal.role.includes(Role.DATA_VIEWER)
        ids = [letter["id"] for letter in dead_letters if letter["data"]]
        if ids and not withheld:
            self._gate.require_read(fresh=True)
            entry = AuditEntry(principal.name, "read event data", f"pipe/{pipe}", now_us())
            await self._audit.note(entry.ended(AuditOutcome.DONE, {"dead_letters": ids}))
        return [
            {**letter, "data": "" if withheld else letter["data"], "withheld": withheld}
            for letter in dead_letters
        ]
