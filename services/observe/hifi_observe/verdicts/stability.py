"""Judge whether stream, services and pipes are stable, and report it to the control plane."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final

from hifi.control.action import STREAM, Action
from hifi.control.verdict import Verdict
from hifi.runtime.clock import now_us
from hifi_observe.alarms.alarm import AlarmSilence, Key
from hifi_observe.live.live_figures import LiveFigures
from hifi_observe.live.revision_counts import RevisionCounts
from hifi_observe.minutes.minute_store import MinuteStore
from hifi_observe.pipes import ObservedPipes
from hifi_observe.settings import ObserveSettings
from hifi_observe.verdicts.judgement import SERVICES, PipeTraffic, judge
from hifi_observe.verdicts.verdict_reporter import VerdictReporter
from hifi_observe.verdicts.verdict_tracker import VerdictTracker

_PIPE_SCOPE: Final = "pipe/"


class Stability:
    """The newest verdicts, and the actions of the control plane.

    Args:
        settings: of the service.
        pipes: of the stream.
        store: momentary figures of the revisions.
        live: momentary figures of pipes.
        silences: those that actions of the control plane make are kept up to date in it.
        reports: returns whether this instance reports to the control plane; one does.
    """

    def __init__(
        self,
        settings: ObserveSettings,
        pipes: ObservedPipes,
        store: MinuteStore,
        live: LiveFigures,
        silences: dict[str, AlarmSilence],
        reports: Callable[[], bool],
    ) -> None:
        self._pipes = pipes
        self._store = store
        self._live = live
        self._tracker = VerdictTracker(settings.observe_stable_s)
        self._revision_counts = RevisionCounts()
        self.reporter = (
            VerdictReporter(settings, lambda: self.verdicts() if reports() else [], silences)
            if settings.control
            else None
        )
        """None: there is no control plane."""

    def verdicts(self) -> list[Verdict]:
        """The newest verdict on every scope, by scope."""
        return [
            replace(verdict, rollout=self._revision_counts.get(verdict.scope.removeprefix(_PIPE_SCOPE)))
            if verdict.scope.startswith(_PIPE_SCOPE)
            else verdict
            for verdict in self._tracker.verdicts
        ]

    def actions(self) -> list[Action] | None:
        """The actions of the control plane, newest first; None without one."""
        return None if self.reporter is None else self.reporter.actions

    def judge(self, conditions: Mapping[Key, str]) -> None:
        """Judge all scopes from the conditions of alarms that hold now, each with its cause."""
        traffic = {}
        for pipe in self._pipes.names():
            pipe_figures = self._live.of_pipe(pipe)
            traffic[pipe] = PipeTraffic(pipe_figures["rate_in"], pipe_figures["dead_last_minute"])
        scopes = (
            STREAM,
            *(f"service/{service}" for service in SERVICES),
            *(_PIPE_SCOPE + pipe for pipe in traffic),
        )
        self._revision_counts.step(self._store.live, self._pipes.with_rollout(), now_us())
        self._tracker.step(scopes, judge(conditions, traffic, has_figures=self._live.has_figures), now_us())
