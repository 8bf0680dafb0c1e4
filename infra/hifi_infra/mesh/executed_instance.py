"""One instance as an executor reports it, with its JSON form."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final

from hifi.record.typed_body import RecordBodyReader
from hifi_infra.mesh.health_probe import LOOPBACK


@dataclass(frozen=True, slots=True)
class ExecutedInstance:
    """One instance.

    Attributes:
        service: as in `egest`.
        name: as in `egest-2`.
        port: of its health pages.
        used_s: CPU time so far, seconds.
        release: that it runs.
        ready: whether it was ready when last probed.
        ready_after_s: seconds from the start of its process until it was ready; None: it was not ready yet, or nobody
            saw it become ready.
        restarts: how often it ended by itself and was started again since it has this release.
        rss_bytes: resident memory.
        member: its name in consumer groups; ends with `-` where that is only how the name begins.
        host: of its health pages.
        measured: whether CPU time and memory are those of now; else the CPU time is an earlier one, and memory is 0.
    """

    service: str
    name: str
    port: int
    used_s: float
    release: str
    ready: bool
    ready_after_s: float | None
    restarts: int
    rss_bytes: int
    member: str
    host: str = LOOPBACK
    measured: bool = True

    def cpu_seconds(self) -> float:
        """CPU time so far, in seconds."""
        return self.used_s

    def is_member(self, client_id: str) -> bool:
        """Whether a member of a consumer group is this instance."""
        return client_id == self.member or (self.member.endswith("-") and client_id.startswith(self.member))

    def json(self) -> dict[str, Any]:
        """The instance as JSON of the executor's API."""
        return asdict(self)


_INSTANCE: Final = RecordBodyReader(ExecutedInstance, "an instance")


def decode(content: Mapping[str, Any]) -> ExecutedInstance:
    """An instance from its form in the executor's API.

    Raises:
        ValueError: it lacks something, or has another type.
    """
    return _INSTANCE.of_json(content)
