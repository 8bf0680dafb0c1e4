"""Decides whether a declaration may be put into force."""

from hifi.control.capacity import MeshRating
from hifi.control.declaration import Declaration
from hifi.control.rollout_status import RolloutState
from hifi.pipe.model import Pipe
from hifi.pipe.registry import PipeRegistry
from hifi.runtime.errors import Misconfigured
from hifi_rollout.checks import require_capacity, require_free_keys, require_valid
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

    async def stopped(self, declaration: Declaration) -> bool:
        """Whether a person has aborted or paused a declaration before its first action; then its status says who."""
        wishes = self._declared.wishes(declaration)
        if wishes.aborted_by is not None:
            state, reason = RolloutState.ROLLED_BACK, f"aborted by {wishes.aborted_by}"
        elif wishes.paused_by is not None and not self.forced_by(declaration):
            state, reason = RolloutState.PAUSED, f"paused by {wishes.paused_by}"
        else:
            return False
        await self._statuses.write(declaration, state, None, 0, reason)
        return True

    async def admit(self, declaration: Declaration, pipe: Pipe) -> bool:
        """Whether a declared pipe may be put into force; if not, its status says why.

        Raises:
            ActionRefused: it waits for capacity, and no person forces it; for Vault; or for another pipe to give up a
                write key.
        """
        if await self.stopped(declaration):
            return False
        revisions = self._registry.all()
        pipes_in_force = {revision.pipe.pipe: revision.pipe for revision in revisions}
        introduced_pipes = [revision.rollout.next.pipe for revision in revisions if revision.rollout]
        declared_pipes = {name: newest.pipe for name, newest in self._declared.declarations.items()}
        try:
            require_valid(pipe, pipes_in_force, coloured=self._registry.coloured)
            require_free_keys(pipe, [*pipes_in_force.values(), *introduced_pipes], declared_pipes)
        except Misconfigured as error:
            await self._statuses.write(declaration, RolloutState.REFUSED, None, 0, str(error))
            return False
        if not self.forced_by(declaration):
            require_capacity(pipe, pipes_in_force, self._rating)
        return True
