"""Whether a declared pipe may be put into force: the checks of `hifi check` that need no Spark, and capacity."""

from collections.abc import Collection, Mapping

from hifi.control.action_right import ActionRefused
from hifi.control.capacity import MeshRating, over_capacity
from hifi.delivery.destination_changes import require_possible_changes
from hifi.delivery.several_logs import require_fit_for_colours
from hifi.pipe.function_import import require_function
from hifi.pipe.limit_check import functions, masks, require_allowed, require_mask_keys
from hifi.pipe.mask import KeyedHash
from hifi.pipe.model import Pipe
from hifi.pipe.secret_manager import secret_memory
from hifi.pipe.shared_keys import KeyOwners, require_keys_of_their_own


def require_valid(pipe: Pipe, pipes_in_force: Mapping[str, Pipe], *, coloured: bool) -> None:
    """Check a pipe beside those that are in force.

    Args:
        pipe: as it is declared.
        pipes_in_force: name to the pipe that is in force.
        coloured: the stream is one of two colours.

    Raises:
        Misconfigured: it has a problem.
        ActionRefused: Vault has not answered yet for the key of a new mask.
    """
    require_allowed([pipe])
    if coloured:
        require_fit_for_colours([pipe])
    for _, path in functions(pipe):
        require_function(path)
    _require_answer_of_vault(pipe, pipes_in_force.get(pipe.pipe))
    require_mask_keys([pipe], dict(pipes_in_force))
    require_possible_changes(pipe, pipes_in_force)


def require_free_keys(
    pipe: Pipe, published_pipes: Collection[Pipe], declared_pipes: Mapping[str, Pipe | None]
) -> None:
    """Check that no other pipe has a write key of a pipe.

    Args:
        pipe: as it is declared.
        published_pipes: in force, and those of rollouts that run.
        declared_pipes: name to the pipe of the newest declaration; None: it is to be deleted.

    Raises:
        Misconfigured: another pipe has one, and is declared with it.
        ActionRefused: another pipe has one until its newest declaration is in force.
    """
    owners = KeyOwners()
    for published_pipe in published_pipes:
        if published_pipe.pipe != pipe.pipe:
            owners.add(published_pipe)
    names = sorted({name for _, name in owners.others(pipe)})
    if not names:
        return
    lasting_pipes = [
        published_pipe for published_pipe in published_pipes if published_pipe.pipe not in declared_pipes
    ]
    lasting_pipes += [
        declared_pipe for name in names if (declared_pipe := declared_pipes.get(name)) is not None
    ]
    require_keys_of_their_own([pipe], lasting_pipes)
    raise ActionRefused(
        f"a write key belongs to {', '.join(names)} until the newest declaration there, without it, is in force"
    )


def _require_answer_of_vault(pipe: Pipe, pipe_in_force: Pipe | None) -> None:
    """Check that Vault has returned or refused the keys of new masks, of which `require_mask_keys` needs the value."""
    masks_in_force = {} if pipe_in_force is None else dict(masks(pipe_in_force))
    names = [
        mask.hash.vault
        for path, mask in masks(pipe)
        if isinstance(mask, KeyedHash) and mask.hash.vault is not None and masks_in_force.get(path) != mask
    ]
    if names and (reason := secret_memory().missing(names)):
        raise ActionRefused(f"the key of a new mask cannot be read yet: {reason}")


def require_capacity(pipe: Pipe, pipes_in_force: Mapping[str, Pipe], rating: MeshRating) -> None:
    """Check whether the mesh carries a pipe beside those that are in force.

    Raises:
        ActionRefused: it does not, by its rating and the pipes' quotas.
    """
    if reason := over_capacity(pipe, pipes_in_force, rating):
        raise ActionRefused(reason)
