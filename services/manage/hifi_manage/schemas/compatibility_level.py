"""The compatibility that a subject's versions must have. Pure."""

from collections.abc import Iterator, Sequence
from enum import StrEnum

from hifi.avro.schema import AvroSchema
from hifi_manage.schemas.compatibility import incompatibilities


class Level(StrEnum):
    """Which versions must read data of which."""

    NONE = "NONE"
    BACKWARD = "BACKWARD"
    """A new version reads data of the newest one."""
    BACKWARD_TRANSITIVE = "BACKWARD_TRANSITIVE"
    """A new version reads data of all."""
    FORWARD = "FORWARD"
    """The newest one reads data of a new version."""
    FORWARD_TRANSITIVE = "FORWARD_TRANSITIVE"
    """All read data of a new version."""
    FULL = "FULL"
    """BACKWARD and FORWARD."""
    FULL_TRANSITIVE = "FULL_TRANSITIVE"
    """BACKWARD_TRANSITIVE and FORWARD_TRANSITIVE."""

    @property
    def transitive(self) -> bool:
        """Whether all versions count, not the newest one alone."""
        return self.value.endswith("_TRANSITIVE")

    def problems(self, new_schema: AvroSchema, versions: Sequence[tuple[int, AvroSchema]]) -> Iterator[str]:
        """Incompatibilities that keep a new schema from being the next version of a subject.

        Args:
            new_schema: the schema.
            versions: number and schema of those that it has, oldest first.
        """
        for number, old_schema in versions if self.transitive else versions[-1:]:
            if self.value.startswith(("BACKWARD", "FULL")):
                for problem in incompatibilities(new_schema, old_schema):
                    yield f"with it data of version {number} cannot be read: {problem}"
            if self.value.startswith(("FORWARD", "FULL")):
                for problem in incompatibilities(old_schema, new_schema):
                    yield f"with version {number} its data cannot be read: {problem}"
