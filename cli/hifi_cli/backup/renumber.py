"""Records name others by their offsets, which are other ones after a restore. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from hifi.control.declaration import NONE
from hifi_cli.backup.state import AUDIT, DEPLOYMENTS, REQUESTS, ROLLOUTS, StateRecord

_DECLARED: Final = "pipe/"
_RELEASE: Final = "service/"


@dataclass(frozen=True, slots=True)
class Numbers:
    """Offsets in the backup to offsets after the restore, of the records that others refer to.

    Attributes:
        present: pipe to the number of its newest declaration in the stream before the restore.
        declared: of declarations.
        releases: of desired releases.
    """

    present: Mapping[str, int] = field(default_factory=dict)
    declared: dict[int, int] = field(default_factory=dict)
    releases: dict[int, int] = field(default_factory=dict)

    def declaration(self, one: StateRecord) -> StateRecord:
        """A declaration with the number of the one that it replaces; those that it replaces were written before."""
        replaced = self.declared.get(one.value["replaces"], self.present.get(one.key, NONE))
        return _with(one, replaces=replaced)

    def referring(self, one: StateRecord) -> StateRecord | None:
        """A record of another topic; None: it is a request about an earlier declaration or release, without effect."""
        if one.topic == ROLLOUTS:
            return _with(one, declaration=self.declared.get(one.value["declaration"], NONE))
        if one.topic == DEPLOYMENTS:
            return _with(one, number=self.releases.get(one.value["number"], NONE))
        if one.topic == REQUESTS:
            number = self._of(one.value["scope"]).get(one.value["number"])
            return None if number is None else _with(one, number=number)
        if one.topic == AUDIT:
            known = self._of(one.value["subject"])
            return _with(
                one, **{name: _renumbered(one.value.get(name), known) for name in ("before", "after")}
            )
        return one

    def _of(self, scope: str) -> Mapping[int, int]:
        if scope.startswith(_DECLARED):
            return self.declared
        return self.releases if scope.startswith(_RELEASE) else {}


def _renumbered(value: Any, known: Mapping[int, int]) -> Any:
    """A number of a declaration; principals, which are objects, stay as they are."""
    return known.get(value, NONE) if known and isinstance(value, int) else value


def _with(one: StateRecord, **changes: Any) -> StateRecord:
    return replace(one, value={**one.value, **changes})
