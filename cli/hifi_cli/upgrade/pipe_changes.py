"""Published pipes that the installed release cannot read, or whose declaration it refuses."""

from collections.abc import Iterator
from typing import Final

from hifi.pipe.limit_check import refusals
from hifi.pipe.limits import PipeLimits
from hifi.pipe.registry import HELD_ADVICE, RegistrySnapshot
from hifi_cli.upgrade.change import YOU, UpgradeChange

_WANTED: Final = "a declaration that it takes"
_PUBLISH: Final = (
    "change the pipe and publish it before the upgrade. Limits are those of this command: if the services have "
    "others, set their HIFI_PIPES_… and HIFI_EGRESS_ALLOW"
)


def pipe_changes(published: RegistrySnapshot, limits: PipeLimits) -> Iterator[UpgradeChange]:
    """A change for each pipe that is held, and for each setting of a pipe that is refused.

    Files, functions and expressions are not tried: the services have them, not this command.

    Args:
        published: content of the topic `pipes`, as the installed release reads it.
        limits: on what pipes may name.
    """
    for name, reason in published.held.items():
        yield UpgradeChange("pipe", name, f"held: {reason}", _WANTED, YOU, HELD_ADVICE)
    for name, revision in sorted(published.pipes.items()):
        if name in published.held:
            continue
        for path, reason in refusals(revision.pipe, limits):
            now = f"refused: {'.'.join(map(str, path))}: {reason}"
            yield UpgradeChange("pipe", name, now, _WANTED, YOU, _PUBLISH)
