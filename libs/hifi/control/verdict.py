"""observe's verdict on the stream, a service or a pipe. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Annotated, Any, Final

import orjson
from pydantic import Field
from typing_extensions import TypedDict

from hifi.control.revision_figures import RolloutFigures
from hifi.record.typed_body import RecordBodyReader

VALID_S: Final = 10
"""An older verdict counts as unknown, seconds."""
PUBLISH_S: Final = 3
"""Time between two verdicts on the same scope, seconds."""


class Condition(StrEnum):
    """How a scope is."""

    STABLE = "stable"
    UNSTABLE = "unstable"
    UNKNOWN = "unknown"


class VerdictJson(TypedDict):
    """A verdict as JSON."""

    scope: Annotated[str, Field(description="`stream`, `service/NAME` or `pipe/NAME`.")]
    condition: Condition
    since_us: int
    at_us: int
    reasons: list[str]
    figures: dict[str, float]
    rollout: dict[str, Any] | None


@dataclass(frozen=True, slots=True)
class Verdict:
    """How a scope is, since when, and why.

    Attributes:
        scope: `stream`, `service/NAME` or `pipe/NAME`.
        condition: stable, unstable or unknown.
        since_us: when the condition began, microseconds since 1970 UTC.
        at_us: when it was judged, microseconds since 1970 UTC.
        reasons: why it is not stable, for people; empty when it is.
        figures: the numbers behind it, by name with unit.
        rollout: of a pipe with a rollout, the figures of its revisions.
    """

    scope: str
    condition: Condition
    since_us: int
    at_us: int
    reasons: tuple[str, ...] = ()
    figures: Mapping[str, float] = field(default_factory=dict)
    rollout: RolloutFigures | None = None

    def encode(self) -> bytes:
        """The value of its record in the topic `health`; the key is the scope."""
        return orjson.dumps(self.json())

    def json(self) -> VerdictJson:
        """JSON for the API."""
        return {
            "scope": self.scope,
            "condition": self.condition,
            "since_us": self.since_us,
            "at_us": self.at_us,
            "reasons": list(self.reasons),
            "figures": dict(self.figures),
            "rollout": self.rollout.json() if self.rollout is not None else None,
        }


_VERDICT: Final = RecordBodyReader(Verdict, "a verdict", required=["reasons", "figures"])


def decode(value: bytes) -> Verdict:
    """A verdict from the value of a record.

    Raises:
        ValueError: it is not the record of a verdict.
    """
    return _VERDICT.of_value(value)


class Verdicts:
    """The newest verdict on each scope."""

    def __init__(self) -> None:
        self._verdicts: dict[str, Verdict] = {}

    def put(self, verdict: Verdict) -> None:
        """Take in a verdict."""
        self._verdicts[verdict.scope] = verdict

    def take(self, key: bytes | None, value: bytes | None, offset: int) -> None:
        """Take in a record of the topic `health`.

        Raises:
            ValueError: it is no verdict.
        """
        del key, offset
        self.put(decode(value or b""))

    def get(self, scope: str) -> Verdict | None:
        """The newest verdict on a scope, however old; None: there is none."""
        return self._verdicts.get(scope)

    def condition(self, scopes: tuple[str, ...], now_us: int) -> Condition:
        """The worst condition of several scopes: unknown when one is unknown, else unstable when one is."""
        conditions = {self._condition(scope, now_us) for scope in scopes}
        for worst_condition in (Condition.UNKNOWN, Condition.UNSTABLE):
            if worst_condition in conditions:
                return worst_condition
        return Condition.STABLE

    def _condition(self, scope: str, now_us: int) -> Condition:
        verdict = self._verdicts.get(scope)
        if verdict is None or now_us - verdict.at_us > VALID_S * 1_000_000:
            return Condition.UNKNOWN
        return verdict.condition
