"""Ask observe, that of one mesh or that of each of two colours."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hifi.runtime.errors import HifiError
from hifi_cli.mesh_state.target import observe_api
from hifi_infra.mesh import running


@dataclass(frozen=True, slots=True)
class MeshAnswers:
    """The answers of observe to a request.

    Attributes:
        bodies: colour to its answer; one mesh has an empty name.
        asleep: colours that do not run.
        failed: colour that runs to why it gave no answer.
    """

    bodies: Mapping[str, dict[str, Any]]
    asleep: Sequence[str] = ()
    failed: Mapping[str, str] = field(default_factory=dict)

    def rows(self, member: str) -> list[dict[str, Any]]:
        """The rows of a member of all answers; of two colours each row has its `colour`."""
        return [
            row | ({"colour": colour} if colour else {})
            for colour, body in self.bodies.items()
            for row in body[member]
        ]

    @property
    def gaps(self) -> list[str]:
        """The colours that gave no answer and why, for people."""
        sleeping = [f"{name} does not run; `hifi colour wake {name}` starts it" for name in self.asleep]
        return [*sleeping, *(f"{name}: {reason}" for name, reason in self.failed.items())]


def ask_observe(data: Path, url: str | None, path: str) -> MeshAnswers:
    """Send a GET request to observe, or to the observe of each colour of the mesh that runs.

    Raises:
        HifiError: observe does not answer, or answers with an error; of two colours: no answer was given.
    """
    mesh = None if url else running.find(data)
    if mesh is None or not mesh.colours:
        return MeshAnswers({"": observe_api(data, url).get(path)})
    bodies: dict[str, dict[str, Any]] = {}
    asleep, failed = [], {}
    for name, folder in mesh.colours.items():
        if running.find(folder) is None:
            asleep.append(name)
            continue
        try:
            bodies[name] = observe_api(folder, None).get(path)
        except HifiError as error:
            failed[name] = str(error)
    answers = MeshAnswers(bodies, asleep, failed)
    if not bodies:
        raise HifiError("; ".join(answers.gaps))
    return answers
