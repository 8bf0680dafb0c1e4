"""Verdicts, rollouts and the actions of the control plane."""

from collections.abc import Callable
from dataclasses import asdict
from typing import Any, Final

from typing_extensions import TypedDict

from hifi.control.verdict import Verdict, VerdictJson
from hifi.pipe.registry import PipeRegistry
from hifi.pipe.revision import WHOLE
from hifi_observe.verdicts.stability import Stability

_PIPE: Final = "pipe/"
_ACTIONS: Final = 100
"""Actions of the control plane that are shown."""


class VerdictList(TypedDict):
    """The newest verdict on every scope."""

    verdicts: list[VerdictJson]


class Control(TypedDict):
    """Verdicts, the rollouts that run, and the actions of the control plane."""

    verdicts: list[VerdictJson]
    rollouts: list[dict[str, Any]]
    """A row for each revision of a pipe with a rollout, with `share` in percent."""
    actions: list[dict[str, Any]] | None
    """The newest actions; None without a control plane."""


class ControlAnswers:
    """Answers about the control plane."""

    def __init__(self, stability: Stability, registry: PipeRegistry) -> None:
        self._stability = stability
        self._registry = registry

    def verdicts(self, may_see: Callable[[str], bool]) -> VerdictList:
        """The newest verdict on every scope that somebody sees."""
        return {"verdicts": [verdict.json() for verdict in self._verdicts(may_see)]}

    def control(self, may_see: Callable[[str], bool]) -> Control:
        """Verdicts, rollouts and actions that somebody sees."""
        verdicts, actions = self._verdicts(may_see), self._stability.actions()
        if actions is not None:
            actions = [action for action in actions if _is_visible(action.scope, may_see)]
        return {
            "verdicts": [verdict.json() for verdict in verdicts],
            "rollouts": [row for verdict in verdicts for row in self._revisions(verdict)],
            "actions": None if actions is None else [asdict(action) for action in actions[:_ACTIONS]],
        }

    def _verdicts(self, may_see: Callable[[str], bool]) -> list[Verdict]:
        return [verdict for verdict in self._stability.verdicts() if _is_visible(verdict.scope, may_see)]

    def _revisions(self, verdict: Verdict) -> list[dict[str, Any]]:
        pipe = verdict.scope.removeprefix(_PIPE)
        pipe_revision = self._registry.get(pipe)
        if verdict.rollout is None or pipe_revision is None or pipe_revision.rollout is None:
            return []
        next_revision, share = pipe_revision.rollout.next.number, pipe_revision.rollout.share * 100 / WHOLE
        return [
            {
                "pipe": pipe,
                "revision": revision,
                "next": revision == next_revision,
                "share": share if revision == next_revision else 100 - share,
                "figures": asdict(verdict.rollout.of(revision)),
            }
            for revision in (pipe_revision.number, next_revision)
        ]


def _is_visible(scope: str, may_see: Callable[[str], bool]) -> bool:
    return not scope.startswith(_PIPE) or may_see(scope.removeprefix(_PIPE))
