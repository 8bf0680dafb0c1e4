"""Whether a declared pipe may be put into force: the checks of `hifi check` that need no Spark, and capacity."""

from collections.abc import Mapping

from hifi.control.capacity import MeshRating, over_capacity
from hifi.control.steps import StepRefused
from hifi.delivery.several_logs import require_fit_for_colours
from hifi.pipe.function_import import require_function
from hifi.pipe.limit_check import functions, require_allowed, require_mask_keys
from hifi.pipe.model import Pipe
from hifi.pipe.shared_keys import require_keys_of_their_own
from hifi_rollout.destination_changes import require_possible_changes


def require_valid(pipe: Pipe, pipes_in_force: Mapping[str, Pipe], *, coloured: bool) -> None:
    """Check a pipe beside those that are in force.

    Args:
        pipe: as it is declared.
        pipes_in_force: name to the pipe that is in force.
        coloured: the stream is one of two colours.

    Raises:
        Misconfigured: it has a problem.
    """
    require_allowed([pipe])
    require_keys_of_their_own([pipe], pipes_in_force.values())
    if coloured:
        require_fit_for_colours([pipe])
    for _, path in functions(pipe):
        require_function(path)
    require_mask_keys([pipe], dict(pipes_in_force))
    require_possible_changes(pipe, pipes_in_force)


def require_capacity(pipe: Pipe, pipes_in_force: Mapping[str, Pipe], rating: MeshRating) -> None:
    """Check whether the mesh carries a pipe beside those that are in force.

    Raises:
        StepRefused: it does not, by its rating and the pipes' quotas.
    """
    if reason := over_capacity(pipe, pipes_in_force, rating):
        raise StepRefused(reason)
