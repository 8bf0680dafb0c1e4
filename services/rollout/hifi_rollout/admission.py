"""Decides whether a declaration may be put into force."""

from hifi.control.capacity import MeshRating
from hifi.control.declaration import Declaration
from hifi.control.rollout_status import RolloutState
from hifi.pipe.model import Pipe
from hifi.pipe.registry import PipeRegistry
from hifi.runtime.errors import Misconfigured
from hifi_rollout.checks import require_capacity, require_valid
from hifi_rollout.declared_pipes import DeclaredPipes
from hifi_rollout.status_writer import StatusWriter


class PipeAdmission:
    """Checks declared pipes beside those that are in force.

    Args:
        rating: of the mesh.
        registry: of the pipes, started.
        declared: has what people force.
        statuses: where a refusal is written.
    """

    def __init__(
        self, rating: MeshRating, registry: PipeRegistry, declared: DeclaredPipes, statuses: StatusWriter
    ) -> None:
        self._rating = rating
        self._registry = registry
        self._declared = declared
        self._statuses = statuses

    def forced_by(self, declaration: Declaration) -> str:
        """The person who wants it begun although no verdict or rating allows it; empty: nobody."""
        return self._declared.wishes(declaration).forced.get(0, "")

    async def accept(self, declaration: Declaration, pipe: Pipe) -> bool:
        """Whether a declared pipe may be put into force; if not, its status says why.

        Raises:
            StepRefused: it waits for capacity, and no person forces it.
        """
        pipes_in_force = {revision.pipe.pipe: revision.pipe for revision in self._registry.all()}
        try:
            require_valid(pipe, pipes_in_force, coloured=self._registry.coloured)
        except Misconfigured as error:
            await self._statuses.write(declaration, RolloutState.REFUSED, None, 0, str(error))
            return False
        if not self.forced_by(declaration):
            require_capacity(pipe, pipes_in_force, self._rating)
        return True
