"""Pipes, versions, the audit and test events as JSON: the types of the API's bodies, and their builders."""

from typing import Annotated, Any, Final, NotRequired, cast

from pydantic import BaseModel, ConfigDict, Field
from typing_extensions import TypedDict

from hifi.control.declaration import NONE, Declaration, DeclaredState, Origin
from hifi.control.pipe_yaml import difference, pipe_yaml
from hifi.control.principals.audit import AuditEntry
from hifi.control.principals.principal import ListedPrincipalJson, Principal, RevokedPersonJson
from hifi.control.rollout_status import RolloutStatus
from hifi.delivery.destination_state import DestinationName, DestinationState
from hifi.pipe.issued_key import IssuedKeyJson
from hifi.pipe.model import Pipe
from hifi.pipe.revision import PipeRevision
from hifi_manage.control_state import ControlState
from hifi_manage.pipe_text import TextProblem
from hifi_manage.trial import Trial, TrialDelivery

_LONGEST_S: Final = 100 * 365 * 86400.0

Yaml = Annotated[str, Field(description="The same as YAML.")]


class VersionView(TypedDict):
    """A version of a pipe without its body."""

    number: Annotated[int, Field(description="Number of the declaration.")]
    author: str
    at_us: int
    origin: Origin
    state: DeclaredState
    deleted: bool


class VersionList(TypedDict):
    """The newest versions of a pipe, newest first."""

    versions: list[VersionView]


class VersionWithBody(VersionView):
    """A version of a pipe."""

    body: dict[str, Any] | None
    yaml: str
    changes: Annotated[
        str | None,
        Field(description="Unified diff from the version that it replaced; null: that is no longer kept."),
    ]


class DeclaredView(VersionView):
    """The newest version of a pipe."""

    body: NotRequired[
        Annotated[dict[str, Any] | None, Field(description="The pipe as declared; in lists it is left out.")]
    ]
    yaml: NotRequired[Yaml]


class InForceView(TypedDict):
    """The revision of a pipe that services apply."""

    revision: int
    paused: Annotated[bool, Field(description="Whether it takes no new events.")]
    cap_per_s: Annotated[
        float | None,
        Field(description="Events per second that a new pipe may take in its present phase."),
    ]
    body: NotRequired[
        Annotated[dict[str, Any], Field(description="The revision in force; in lists it is left out.")]
    ]
    yaml: NotRequired[Yaml]


class OwnerView(TypedDict):
    """The owner of a pipe."""

    webhook: str | None
    email: str | None


class DestinationView(TypedDict):
    """A destination of a pipe, with the last change of its state."""

    name: str
    state: DestinationState
    by: Annotated[str | None, Field(description="`egest` or `operator`.")]
    reason: str
    since_us: int | None


class PipeView(TypedDict):
    """A pipe as declared and as in force."""

    pipe: str
    owner: OwnerView | None
    declared: DeclaredView | None
    in_force: InForceView | None
    rollout: RolloutStatus | None
    destinations: NotRequired[
        Annotated[
            list[DestinationView],
            Field(
                description="Those in force, with the last change of their state; in lists it is left out."
            ),
        ]
    ]


class PipeList(TypedDict):
    """Pipes without bodies."""

    pipes: list[PipeView]


class PipeRollout(TypedDict):
    """The rollout of a pipe."""

    pipe: str
    rollout: RolloutStatus


class ProblemList(TypedDict):
    """Problems in the text of a pipe."""

    problems: list[TextProblem]


class PrincipalList(TypedDict):
    """Principals without their tokens, and people who may not sign in with the provider."""

    principals: list[ListedPrincipalJson]
    revoked: list[RevokedPersonJson]


class KeyList(TypedDict):
    """Write keys of a pipe that were issued, without the keys."""

    keys: list[IssuedKeyJson]


class NewKey(TypedDict):
    """A write key that was issued."""

    secret: Annotated[str, Field(description="The key, which is shown only now.")]
    key: IssuedKeyJson


class KeyRequest(BaseModel):
    """A write key to issue."""

    model_config = ConfigDict(extra="forbid")

    origins: list[str] = Field([], description="Pages that may send with it; empty: programs.")
    expires_s: float | None = Field(
        None, gt=0, le=_LONGEST_S, description="Time until it expires; null: it does not."
    )


class RotationRequest(BaseModel):
    """A request to replace a write key."""

    model_config = ConfigDict(extra="forbid")

    overlap_s: float = Field(
        7 * 86400, ge=0, le=_LONGEST_S, description="Time for which the key before goes on."
    )


class AuditEntries(TypedDict):
    """Entries of the audit, newest first."""

    entries: list[AuditEntry]


class TrialRequest(BaseModel):
    """A test event for a pipe."""

    pipe: str = Field(description="The pipe in YAML.")
    event: Any = Field(description="Data of the event.")


class TrialRefusal(TypedDict):
    """The dead letter that a test event would become."""

    reason: str
    detail: str
    pointer: str


class TrialView(TypedDict):
    """The result of a test event."""

    data: Annotated[str | None, Field(description="After normalize; null: the event is refused.")]
    refused: TrialRefusal | None
    deliveries: list[TrialDelivery]
    not_evaluated: list[str]


def pipe_view(state: ControlState, name: str, *, bodies: bool = True) -> PipeView:
    """A pipe as declared and as in force.

    Args:
        state: has the pipe.
        name: of the pipe.
        bodies: whether the bodies of the pipe, its YAML and its destinations are part of it.
    """
    newest, current = state.declared.newest.get(name), state.registry.get(name)
    pipe = newest.pipe if newest is not None else current.pipe if current is not None else None
    view: PipeView = {
        "pipe": name,
        "owner": _owner(pipe),
        "declared": None if newest is None else _declared_view(newest, bodies=bodies),
        "in_force": None if current is None else _in_force_view(current, bodies=bodies),
        "rollout": state.statuses().get(name),
    }
    if bodies:
        view["destinations"] = _destinations(state, current.pipe if current is not None else pipe)
    return view


def version_view(declaration: Declaration) -> VersionView:
    """A version of a pipe without its body."""
    return {
        "number": declaration.number,
        "author": declaration.author,
        "at_us": declaration.at_us,
        "origin": declaration.origin,
        "state": declaration.state,
        "deleted": declaration.pipe is None,
    }


def version_with_body(state: ControlState, declaration: Declaration) -> VersionWithBody:
    """A version of a pipe."""
    return {
        **version_view(declaration),
        "body": declaration.body(),
        "yaml": pipe_yaml(declaration.pipe),
        "changes": _changes(state, declaration),
    }


def audit_view(state: ControlState, principal: Principal) -> AuditEntries:
    """The entries of the audit that the principal may see, newest first."""
    visible_entries = [
        entry
        for entry in reversed(state.audit.entries.values())
        if not principal.pipes or _pipe_of(entry) in principal.pipes
    ]
    return {"entries": visible_entries}


def trial_view(trial: Trial) -> TrialView:
    """The result of a test event."""
    refusal: TrialRefusal | None = None
    if trial.refused is not None:
        reason, detail, pointer = trial.refused
        refusal = {"reason": reason, "detail": detail, "pointer": pointer}
    return {
        "data": trial.data,
        "refused": refusal,
        "deliveries": list(trial.deliveries),
        "not_evaluated": list(trial.not_evaluated),
    }


def _declared_view(declaration: Declaration, *, bodies: bool) -> DeclaredView:
    view = cast("DeclaredView", version_view(declaration))
    if bodies:
        view["body"] = declaration.body()
        view["yaml"] = pipe_yaml(declaration.pipe)
    return view


def _in_force_view(revision: PipeRevision, *, bodies: bool) -> InForceView:
    view: InForceView = {
        "revision": revision.number,
        "paused": revision.paused,
        "cap_per_s": None if revision.cap is None else revision.cap.events_per_s,
    }
    if bodies:
        view["body"] = revision.pipe.model_dump(mode="json", by_alias=True, exclude_unset=True)
        view["yaml"] = pipe_yaml(revision.pipe)
    return view


def _changes(state: ControlState, declaration: Declaration) -> str | None:
    """The changes of a version, as a unified diff; None: the version that it replaced is no longer kept."""
    declarations = state.declared.versions(declaration.name)
    replaced = next((earlier for earlier in declarations if earlier.number == declaration.replaces), None)
    if replaced is None and declaration.replaces != NONE:
        return None
    old_pipe, old_number = (None, "before") if replaced is None else (replaced.pipe, str(replaced.number))
    return difference(old_pipe, declaration.pipe, old_number, str(declaration.number))


def _pipe_of(entry: AuditEntry) -> str | None:
    kind, _, name = entry.subject.partition("/")
    return name if kind == "pipe" else None


def _owner(pipe: Pipe | None) -> OwnerView | None:
    if pipe is None or pipe.owner is None:
        return None
    webhook = pipe.owner.webhook
    return {"webhook": None if webhook is None else str(webhook), "email": pipe.owner.email}


def _destinations(state: ControlState, pipe: Pipe | None) -> list[DestinationView]:
    if pipe is None:
        return []
    destinations: list[DestinationView] = []
    for destination in pipe.destinations:
        change = state.destinations.get(DestinationName(pipe.pipe, destination.name))
        destinations.append(
            {
                "name": destination.name,
                "state": change.state,
                "by": change.by if change.at_us else None,
                "reason": change.reason,
                "since_us": change.at_us or None,
            }
        )
    return destinations
