"""Records name others by their offsets, which are other ones after a restore. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from hifi.control.declaration import NONE
from hifi_cli.backup.state import AUDIT, DEPLOYMENTS, REQUESTS, ROLLOUTS, StateRecord

_DECLARED: Final = "pipe/"
_RELEASE: Final = "service/"


@dataclass(frozen=True, slots=True)
class RestoredNumbers:
    """Offsets in the backup to offsets after the restore, of the records that others refer to.

    Attributes:
        present: pipe to the number of its newest declaration in the stream before the restore.
        declared: of declarations.
        releases: of desired releases.
    """

    present: Mapping[str, int] = field(default_factory=dict)
    declared: dict[int, int] = field(default_factory=dict)
    releases: dict[int, int] = field(default_factory=dict)

    def declaration(self, record: StateRecord) -> StateRecord:
        """A declaration with the numbers of those that it replaces and repeats, which were written before."""
        replaced_number = self.declared.get(record.value["replaces"], self.present.get(record.key, NONE))
        pipe_number = self.declared.get(record.value.get("pipe_from", NONE), NONE)
        return _with(record, replaces=replaced_number, pipe_from=pipe_number)

    def referring(self, record: StateRecord) -> StateRecord | None:
        """A record of another topic; None: it is a request about an earlier declaration or release, without effect."""
        if record.topic == ROLLOUTS:
            return _with(record, declaration=self.declared.get(record.value["declaration"], NONE))
        if record.topic == DEPLOYMENTS:
            return _with(record, number=self.releases.get(record.value["number"], NONE))
        if record.topic == REQUESTS:
            number = self._numbers_of(record.value["scope"]).get(record.value["number"])
            return None if number is None else _with(record, number=number)
        if record.topic == AUDIT:
            numbers = self._numbers_of(record.value["subject"])
            return _with(
                record, **{name: _renumbered(record.value.get(name), numbers) for name in ("before", "after")}
            )
        return record

    def _numbers_of(self, scope: str) -> Mapping[int, int]:
        if scope.startswith(_DECLARED):
            return self.declared
        return self.releases if scope.startswith(_RELEASE) else {}


def _renumbered(value: Any, numbers: Mapping[int, int]) -> Any:
    """A number of a declaration; principals, which are objects, stay as they are."""
    return numbers.get(value, NONE) if numbers and isinstance(value, int) else value


def _with(record: StateRecord, **changes: Any) -> StateRecord:
    return replace(record, value={**record.value, **changes})
