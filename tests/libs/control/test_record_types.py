"""A record of the control plane whose values have other types is refused when it is read, and so skipped."""

from collections.abc import Callable
from typing import Any

import orjson
import pytest

from hifi.control import action, request, rollout_status, verdict
from hifi.control.action import Action, ActionKind
from hifi.control.declaration import Declarations
from hifi.control.principals.audit import Audit, AuditEntry
from hifi.control.releases import deployment, desired_release
from hifi.control.releases.deployment import Deployment, DeploymentState
from hifi.control.releases.desired_release import DesiredRelease
from hifi.control.request import Request, RequestKind
from hifi.control.rollout_status import RolloutState, RolloutStatus
from hifi.control.verdict import Condition, Verdict
from hifi.delivery import colours
from hifi.record.typed_body import LARGEST

ACTION = action.encode(Action("deploy", ActionKind.DEPLOY, "service/egest", "s", "", 1, 2))
REQUEST = Request("pipe/p", 1, RequestKind.PAUSE, "ann", 1).record().value
STATUS = RolloutStatus("p", 7, "ann", RolloutState.RAMPING, 2, 100, "", 1).record().value
DEPLOYMENT = Deployment("egest", 7, "a", "b", "ann", DeploymentState.CANARY, "egest-2", "", 1).record().value
RELEASE = DesiredRelease("egest", "0.2.0", "ann", 1).record().value
VERDICT = Verdict("stream", Condition.STABLE, 1, 2).encode()
ENTRY = AuditEntry("ann", "declare", "pipe/p", 1).record().value
COLOUR = {"share": 10_000, "state": "active", "ingest": [], "observe": "", "kafka": "", "setup": {}}
COLOURS = orjson.dumps(
    {
        "version": 1,
        "colours": {"blue": COLOUR, "green": COLOUR | {"share": 0}},
        "fronts": [],
        "at": 1,
        "by": "ann",
    }
)


def read_action(value: bytes | None) -> Any:
    return action.decode(value or b"", 3)


def read_release(value: bytes | None) -> Any:
    return desired_release.decode(value, 3)


def read_entry(value: bytes | None) -> Any:
    audit = Audit()
    audit.take(None, value, 3)
    return audit.entries


@pytest.mark.parametrize(
    ("read", "record", "changes"),
    [
        (read_action, ACTION, {"expected_end_us": None}),
        (read_action, ACTION, {"started_us": "soon"}),
        (read_action, ACTION, {"token": "x"}),
        (request.decode, REQUEST, {"share": [1]}),
        (request.decode, REQUEST, {"scope": {}}),
        (rollout_status.decode, STATUS, {"declaration": "seven"}),
        (rollout_status.decode, STATUS, {"since_us": 1_700_000_000_000_000_000}),
        (deployment.decode, DEPLOYMENT, {"number": "x"}),
        (deployment.decode, DEPLOYMENT, {"stage": None}),
        (read_release, RELEASE, {"service": 5}),
        (read_release, RELEASE, {"batch": 1.5}),
        (read_release, RELEASE, {"batch": 0}),
        (verdict.decode, VERDICT, {"at_us": "x"}),
        (verdict.decode, VERDICT, {"figures": {"lost": "x"}}),
        (verdict.decode, VERDICT, {"rollout": {"since_us": 1, "revisions": {"x": {}}}}),
        (read_entry, ENTRY, {"at_us": 1_700_000_000_000_000_000}),
        (read_entry, ENTRY, {"subject": 5}),
        (colours.decode, COLOURS, {"colours": {"blue": COLOUR}}),
        (colours.decode, COLOURS, {"colours": {"blue": COLOUR | {"setup": {"partitions": "x"}}}}),
    ],
)
def test_a_value_of_another_type_is_refused(
    read: Callable[[bytes | None], Any], record: bytes, changes: dict[str, Any]
) -> None:
    assert read(record)
    with pytest.raises(ValueError, match="not"):
        read(orjson.dumps(orjson.loads(record) | changes))
    for other_value in (b"[]", b"5", b"null", b"", None, b"\xff"):
        with pytest.raises(ValueError, match="not"):
            read(other_value)


def test_a_number_that_is_written_as_text_is_the_number() -> None:
    read_deployment = deployment.decode(orjson.dumps(orjson.loads(DEPLOYMENT or b"") | {"number": "7"}))
    assert read_deployment == deployment.decode(DEPLOYMENT)


@pytest.mark.parametrize("changes", [{"at_us": "x"}, {"author": 5}, {"paused": "x"}, {"at_us": LARGEST}])
def test_a_declaration_with_another_type_holds_its_pipe(changes: dict[str, Any]) -> None:
    declarations = Declarations()
    value = {"pipe": None, "author": "ann", "at_us": 1, "replaces": -1, "origin": "file", "id": "a"}
    with pytest.raises(ValueError, match="offset 3"):
        declarations.take(b"flights", orjson.dumps(value | changes), 3)
    assert list(declarations.unreadable) == ["flights"]
    declarations.take(b"flights", orjson.dumps(value | {"replaces": 3}), 4)
    assert declarations.newest["flights"].number == 4
