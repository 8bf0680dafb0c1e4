"""The verdict on each scope as it changes: a scope is stable again only after it had no reasons for a while. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass

from hifi.control.verdict import Condition, Verdict
from hifi.runtime.clock import MICROSECONDS
from hifi_observe.verdicts.judgement import Reasons


@dataclass(slots=True)
class _Kept:
    verdict: Verdict
    last_bad_us: int | None = None
    """When it last had reasons; None: never seen unstable."""
    last_reasons: tuple[str, ...] = ()


class VerdictTracker:
    """Keeps the verdicts on all scopes.

    Args:
        settle_s: time without reasons after which an unstable scope is stable again, seconds.
    """

    def __init__(self, settle_s: float) -> None:
        self._settle_us = round(settle_s * MICROSECONDS)
        self._kept: dict[str, _Kept] = {}

    @property
    def verdicts(self) -> list[Verdict]:
        """The newest verdict on every scope, by scope."""
        return [self._kept[scope].verdict for scope in sorted(self._kept)]

    def step(self, scopes: Iterable[str], judgement: Reasons, now_us: int) -> list[Verdict]:
        """Update the verdicts on these scopes, and forget others.

        Args:
            scopes: every scope that exists now.
            judgement: of this moment.
            now_us: microseconds since 1970 UTC.
        """
        self._kept = {scope: self._judged(scope, judgement, now_us) for scope in scopes}
        return self.verdicts

    def _judged(self, scope: str, judgement: Reasons, now_us: int) -> _Kept:
        before = self._kept.get(scope)
        last_bad_us = before.last_bad_us if before else None
        last_reasons = before.last_reasons if before else ()
        reasons = judgement.by_scope.get(scope, ())
        shown: tuple[str, ...]
        if judgement.unknown:
            condition, shown = Condition.UNKNOWN, (judgement.unknown,)
        elif reasons:
            condition, shown, last_bad_us, last_reasons = Condition.UNSTABLE, reasons, now_us, reasons
        elif last_bad_us is not None and now_us - last_bad_us < self._settle_us:
            ago_s = (now_us - last_bad_us) / MICROSECONDS
            condition = Condition.UNSTABLE
            shown = tuple(f"{text} ({ago_s:.0f} s ago)" for text in last_reasons)
        else:
            condition, shown, last_bad_us = Condition.STABLE, (), None
        since_us = before.verdict.since_us if before and before.verdict.condition is condition else now_us
        return _Kept(Verdict(scope, condition, since_us, now_us, shown), last_bad_us, last_reasons)
