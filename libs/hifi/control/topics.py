"""The topics of a control plane: names, partitions, retention. All of them are declared here."""

from dataclasses import dataclass
from typing import Final

from hifi.topics import DAY_MS, Topic

_ACTIONS_RETENTION_MS: Final = 90 * DAY_MS


@dataclass(frozen=True, slots=True)
class ControlTopics:
    """The names of the topics of one control plane."""

    control: str

    @property
    def prefix(self) -> str:
        """The control plane's name, with which all names begin."""
        return self.control

    @property
    def actions(self) -> str:
        """Steps of the actors: a record when one begins, and one when it ends."""
        return f"{self.control}.actions"

    @property
    def health(self) -> str:
        """The verdicts of observe, by scope."""
        return f"{self.control}.health"

    @property
    def actor(self) -> str:
        """The transactional id with which the right to a step is taken."""
        return f"{self.control}.actor"

    def all(self) -> list[Topic]:
        """Every topic of the control plane, to create it."""
        return [
            Topic(self.actions, partitions=1, retention_ms=_ACTIONS_RETENTION_MS),
            Topic(self.health, partitions=1, compacted=True),
        ]
