"""Pipes, versions, the audit and test events as JSON."""

from dataclasses import asdict
from typing import Any

from hifi.control.declaration import NONE, Declaration
from hifi.control.pipe_yaml import difference, pipe_yaml
from hifi.control.principals.audit import AuditEntry
from hifi.control.principals.principal import Principal
from hifi.delivery.destination_state import DestinationName
from hifi.pipe.model import Pipe
from hifi_manage.control_state import ControlState
from hifi_manage.trial import Trial


def pipe_view(state: ControlState, name: str, *, bodies: bool = True) -> dict[str, Any]:
    """A pipe as declared and as in force.

    Args:
        state: has the pipe.
        name: of the pipe.
        bodies: whether the bodies of the pipe, its YAML and its destinations are part of it.
    """
    newest, current = state.declared.newest.get(name), state.registry.get(name)
    declared: dict[str, Any] | None = None if newest is None else version_view(newest)
    in_force: dict[str, Any] | None = None
    if current is not None:
        cap = None if current.cap is None else current.cap.events_per_s
        in_force = {"revision": current.number, "paused": current.paused, "cap_per_s": cap}
    if bodies and newest is not None and declared is not None:
        declared |= {"body": newest.body(), "yaml": pipe_yaml(newest.pipe)}
    if bodies and current is not None and in_force is not None:
        in_force |= {
            "body": current.pipe.model_dump(mode="json", by_alias=True, exclude_unset=True),
            "yaml": pipe_yaml(current.pipe),
        }
    status = state.statuses().get(name)
    rollout = None if status is None else status.json()
    pipe = newest.pipe if newest is not None else current.pipe if current is not None else None
    owner = None if pipe is None or pipe.owner is None else pipe.owner.model_dump(mode="json")
    destinations = _destinations(state, current.pipe if current is not None else pipe) if bodies else None
    view = {"pipe": name, "owner": owner, "declared": declared, "in_force": in_force, "rollout": rollout}
    return view if destinations is None else view | {"destinations": destinations}


def version_view(declaration: Declaration) -> dict[str, Any]:
    """A version of a pipe without its body."""
    return {
        "number": declaration.number,
        "author": declaration.author,
        "at_us": declaration.at_us,
        "origin": declaration.origin.value,
        "state": declaration.state.value,
        "deleted": declaration.pipe is None,
    }


def changes(state: ControlState, declaration: Declaration) -> str | None:
    """What a version changed, as a unified diff; None: the version that it replaced is no longer kept."""
    kept = state.declared.versions(declaration.name)
    before = next((earlier for earlier in kept if earlier.number == declaration.replaces), None)
    if before is None and declaration.replaces != NONE:
        return None
    old = None if before is None else before.pipe
    return difference(
        old, declaration.pipe, "before" if before is None else str(before.number), str(declaration.number)
    )


def audit_view(state: ControlState, principal: Principal) -> list[dict[str, Any]]:
    """The entries of the audit about what the principal may see, newest first."""
    return [
        entry.json()
        for entry in reversed(state.audit.entries.values())
        if not principal.pipes or _pipe_of(entry) in principal.pipes
    ]


def trial_view(outcome: Trial) -> dict[str, Any]:
    """What becomes of a test event."""
    refused = None
    if outcome.refused is not None:
        refused = dict(zip(("reason", "detail", "pointer"), outcome.refused, strict=True))
    return {
        "data": outcome.data,
        "refused": refused,
        "deliveries": [asdict(delivery) for delivery in outcome.deliveries],
        "not_evaluated": outcome.not_evaluated,
    }


def _pipe_of(entry: AuditEntry) -> str | None:
    kind, _, name = entry.subject.partition("/")
    return name if kind == "pipe" else None


def _destinations(state: ControlState, pipe: Pipe | None) -> list[dict[str, Any]]:
    if pipe is None:
        return []
    destinations = []
    for destination in pipe.destinations:
        change = state.destinations.get(DestinationName(pipe.pipe, destination.name))
        destinations.append(
            {
                "name": destination.name,
                "state": change.state.value,
                "by": change.by if change.at_us else None,
                "reason": change.reason,
                "since_us": change.at_us or None,
            }
        )
    return destinations
