"""A change that the installed release needs, or would make."""

from dataclasses import asdict, dataclass, field
from typing import Any, Final

SETUP: Final = "setup"
"""The setup job and `hifi up` make it."""
ACL_APPLY: Final = "hifi acl apply"
YOU: Final = "you"
"""The operator makes the change."""


@dataclass(frozen=True, slots=True)
class UpgradeChange:
    """A difference between what runs and what the installed release wants."""

    kind: str
    """`topic`, `topic setting`, `ACL`, `setting` or `pipe`."""
    name: str
    now: str
    """The present value; empty: there is none."""
    wanted: str
    """The value that the installed release wants; empty: there is none."""
    made_by: str
    """`setup`, `hifi acl apply`, or `you`."""
    what_to_do: str
    services: list[str] = field(default_factory=list)
    """Services that need it."""

    def json(self) -> dict[str, Any]:
        """The change as JSON."""
        return asdict(self)
