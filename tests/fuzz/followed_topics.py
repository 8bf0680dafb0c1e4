"""What follows topics, and records that it can read: all of a stream and of a control plane but those of events."""

import contextlib
import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, Final, cast

import orjson
from aiokafka import ConsumerRecord
from tests.services.observe.minutes.test_minute_store import MINUTE, merged, share
from tests.services.observe.watermark.test_statement import NOW_US, part, stated

from hifi.control import action
from hifi.control.action import Action, ActionKind
from hifi.control.action_right import ActionLog
from hifi.control.declaration import Declaration
from hifi.control.principals.audit import Audit, AuditEntry
from hifi.control.principals.principal import Principal, Principals, RevokedPerson, Role, token_sha256
from hifi.control.releases.deployment import Deployment, DeploymentState
from hifi.control.releases.desired_release import DesiredRelease
from hifi.control.request import Request, RequestKind
from hifi.control.rollout_status import RolloutState, RolloutStatus
from hifi.control.verdict import Condition, Verdict, Verdicts
from hifi.delivery.colours import Colour, Colours, ColourState, FrontAddress
from hifi.delivery.dead_letters.reader import ReplayNotes
from hifi.delivery.destination_state import (
    DestinationName,
    DestinationState,
    DestinationStates,
    StateChange,
    position_record,
    state_record,
)
from hifi.delivery.published_watermarks import PublishedWatermarks
from hifi.kafka.certificate_reports import CertificateInUse, ReportedCertificates, report_record
from hifi.kafka.key_usage import KeyUsage
from hifi.kafka.last_uses import LastUses
from hifi.kafka.topics import ControlTopics, Topics
from hifi.pipe.issued_key import IssuedKeys, issued_key
from hifi.pipe.model import Pipe
from hifi.pipe.registry import PipeRegistry, stream_record
from hifi.pipe.revision import NextRevision, body_record, pipe_record
from hifi.record.record import Record
from hifi.runtime.certificates import Expiry
from hifi.runtime.errors import Misconfigured
from hifi.runtime.health import Health
from hifi_collect.polled.entries import SourceEntries
from hifi_collect.source_colour import SourceColour
from hifi_deploy.desired_releases import DesiredReleases
from hifi_infra.colours.colour_log import ColourLog
from hifi_infra.colours.key_copy import KeyStream
from hifi_lake.held_tables import HeldTables
from hifi_manage.schemas.compatibility_level import Level
from hifi_manage.schemas.refusals import RegistryRefusal
from hifi_manage.schemas.registered import (
    Reference,
    Registered,
    SchemaBody,
    Version,
    last_id_record,
    level_record,
)
from hifi_normalize.idempotency.source_positions import SourcePositions
from hifi_observe.alarms.alarm import Alarm, AlarmSilence
from hifi_observe.alarms.alarm_notifier import AlarmNotifier
from hifi_observe.colours.colours_view import ColoursView
from hifi_observe.kafka.ledger_recovery import PublishedLedger
from hifi_observe.kafka.minutes_follower import MinutesFollower
from hifi_observe.ledger.closing import ClosingRules
from hifi_observe.minutes import record_keys
from hifi_observe.minutes.minute_store import MinuteStore
from hifi_observe.steps.step_accounting import StepAccounting
from hifi_observe.watermark.watermark_store import WatermarkStore, key_of
from hifi_rollout.declared_pipes import DeclaredPipes
from hifi_state.fold.colour_times import ColourTimes, Interval
from hifi_state.fold.progress import Progress
from hifi_state.fold_log import FoldLog, kept_progress
from hifi_state.step_times_log import StepTimesLog

TOPICS: Final = Topics("s")
CONTROL: Final = ControlTopics("c")
_NOW_S: Final = NOW_US / 1_000_000
_SETTINGS: Final = cast(
    "Any",
    SimpleNamespace(
        kafka="k",
        topics=TOPICS,
        instance="i",
        colours="c",
        colour="blue",
        control_bootstrap="k",
        observe_webhook=None,
        observe_url="",
        observe_webhook_secret_file=None,
    ),
)
Take = Callable[[ConsumerRecord], None]
Read = Callable[[], Any]


@dataclass(frozen=True)
class Followed:
    """A follower of a topic.

    Attributes:
        topic: its name.
        start: a new follower: its handler of records, and a function that uses what was read as the service does, and
            returns what can be compared; with `withdraws` name to what is allowed.
        records: keys and values that it can read, in their order.
        refusals: errors with which it refuses a record, as its docstring says; none: it raises nothing.
        withdraws: whether a record that it refuses withdraws what the key had, else nothing changes.
        headers: of the records.
    """

    topic: str
    start: Callable[[], tuple[Take, Read]]
    records: Sequence[tuple[bytes | None, bytes | None]]
    refusals: tuple[type[Exception], ...] = (ValueError,)
    withdraws: bool = False
    headers: Sequence[tuple[str, bytes]] = ()


def _by_parts(take: Callable[[bytes | None, bytes | None, int], None]) -> Take:
    return lambda record: take(record.key, record.value, record.offset)


def _pairs(*records: Record) -> list[tuple[bytes | None, bytes | None]]:
    return [(record.key, record.value) for record in records]


def _json(value: Any) -> bytes:
    return orjson.dumps(value, option=orjson.OPT_NON_STR_KEYS)


_PIPE: Final = Pipe.model_validate(
    {
        "pipe": "p",
        "source": {"keys": [{"env": "K"}]},
        "destinations": [{"name": "d", "url": "https://d.example/"}],
    }
)
_KEYS: Final = [
    issued_key("k" * 40 + name, "p", origins=["https://a.example"], expires_us=None, author="ann", at_us=1)
    for name in ("a", "b")
]


def _registry() -> tuple[Take, Read]:
    registry = PipeRegistry("k", TOPICS, Health("reader", ""))

    def read() -> dict[str, Any]:
        registry.snapshot()
        assert registry.partitions is None or registry.partitions > 0
        usable = {revision.key: revision for revision in registry.usable()}
        return usable | {"partitions": (registry.partitions, registry.coloured)}

    return registry._apply, read


def _held_tables() -> tuple[Take, Read]:
    tables = HeldTables()
    return tables.take, lambda: tables.of(["p", "p;2"])


def _destinations() -> tuple[Take, Read]:
    states = DestinationStates()

    def read() -> bytes:
        changes = {"/".join(name): dataclasses.asdict(change) for name, change in states.all().items()}
        return _json([changes, {"/".join(name): first for name, first in states.positions(0).items()}])

    return _by_parts(states.take), read


def _allowed(keys: IssuedKeys) -> dict[str, Any]:
    for key in keys.of_pipe("p"):
        _json(key.json())
        keys.of_hash(key.sha256, NOW_US)
    keys.allows_origin("https://a.example", NOW_US)
    return dict(keys.by_id)


def _issued_keys() -> tuple[Take, Read]:
    keys = IssuedKeys()
    return _by_parts(keys.take), lambda: _allowed(keys)


def _key_stream() -> tuple[Take, Read]:
    key_stream = KeyStream()
    return key_stream.take, lambda: _allowed(key_stream.keys)


def _last_uses() -> tuple[Take, Read]:
    uses = LastUses()
    return _by_parts(uses.take), lambda: _json({name: uses.at_us(name, 0) for name in uses._written})


def _key_usage() -> tuple[Take, Read]:
    usage = KeyUsage()
    return _by_parts(usage.take), lambda: _json([list(total) for total in usage.between(0, 100_000).values()])


def _certificates() -> tuple[Take, Read]:
    reported = ReportedCertificates()
    return _by_parts(reported.take), lambda: [
        certificate.text(_NOW_S) for certificate in reported.expiring(_NOW_S)
    ]


def _minutes_follower(store: MinuteStore, watermarks: WatermarkStore) -> MinutesFollower:
    return MinutesFollower(_SETTINGS, TOPICS, store, watermarks, lambda _key, _value: None)


def _minutes() -> tuple[Take, Read]:
    store, watermarks = MinuteStore(), WatermarkStore("this")

    def read() -> bytes:
        for pipe in list(store.minutes):
            for minute in store.minutes[pipe]:
                store.state(pipe, minute)
        days = {
            pipe: {day: record.dump() for day, record in days.items()} for pipe, days in store.days.items()
        }
        return _json(
            [
                store.latest("flights"),
                dataclasses.asdict(store.intake("flights", MINUTE)),
                store.closed_minute(1),
                store.fronts,
                store.live,
                days,
                watermarks.parts,
            ]
        )

    return _minutes_follower(store, watermarks)._take_minute, read


def _ledger() -> tuple[Take, Read]:
    published = PublishedLedger("minutes", 0)
    rules = ClosingRules()

    def read() -> tuple[int, int]:
        ledger = published.ledger(rules, 1)
        ledger.marker()
        return ledger.term, ledger.closed_minute

    return published.take, read


def _watermarks() -> tuple[Take, Read]:
    watermarks = WatermarkStore("this")

    def read() -> bytes:
        return _json([watermarks.of(["p"], NOW_US), watermarks.settled_us(), watermarks.event_us()])

    return _minutes_follower(MinuteStore(), watermarks)._take_watermark, read


def _published_watermarks() -> tuple[Take, Read]:
    watermarks = PublishedWatermarks("k", "c", TOPICS)

    def read() -> Any:
        settled_until = watermarks.settled_until("p", "d")
        assert settled_until is None or isinstance(settled_until, str)
        return watermarks.statement("p", "d"), settled_until

    return watermarks._take, read


def _alarms() -> tuple[Take, Read]:
    notifier = AlarmNotifier(_SETTINGS)

    def read() -> bytes:
        notifier.restore()
        silenced = [
            silence.covers(("loss", "p", ""), NOW_US) for silence in notifier.alarms.silences.values()
        ]
        alarms = [dataclasses.asdict(alarm) for alarm in notifier.notified]
        return _json([alarms, silenced, [channels for _, channels in notifier.told], list(notifier.history)])

    return lambda record: notifier.read(record.key, record.value), read


def _source_entries() -> tuple[Take, Read]:
    entries = SourceEntries(_SETTINGS, "p", "table")
    return _by_parts(entries._take_record), lambda: dict(entries.entries)


def _step_accounting() -> tuple[Take, Read]:
    accounting = StepAccounting(_SETTINGS, cast("Any", None), cast("Any", None), MinuteStore())

    def read() -> str:
        for step, statement in accounting._statements.items():
            account = accounting._account(0, step, statement)
            account.unread(statement)
            account.unread_letters(statement)
            _json(account.dump())
        return repr(accounting._statements)

    return _by_parts(accounting._take), read


def _fold_log() -> tuple[Take, Read]:
    fold_log = FoldLog(_SETTINGS, "p")

    def read() -> Any:
        try:
            return kept_progress(fold_log._value, "p", TOPICS.folds)
        except Misconfigured as error:
            return str(error)

    return _by_parts(fold_log._take_record), read


def _source_positions() -> tuple[Take, Read]:
    positions = SourcePositions()

    def read() -> Any:
        return _pairs(*positions._records(sorted(positions._partitions), 0))

    return lambda record: positions.load(record.key, record.value), read


def _replay_notes() -> tuple[Take, Read]:
    notes = ReplayNotes()
    return (
        lambda record: notes.add(record.partition, record.value, record.timestamp),
        lambda: (
            {partition: set(offsets) for partition, offsets in notes._offsets.items()},
            dict(notes._noted_ms),
        ),
    )


def _actions() -> tuple[Take, Read]:
    log = ActionLog("k", CONTROL.actions, "c")

    def read() -> bytes:
        log.history.last("service/egest")
        return _json([dataclasses.asdict(recorded) for recorded in log.history.newest_first])

    return _by_parts(log._take_action), read


def _verdicts() -> tuple[Take, Read]:
    verdicts = Verdicts()

    def read() -> bytes:
        condition = verdicts.condition(("stream",), NOW_US)
        return _json([newest.json() for newest in verdicts._verdicts.values()] + [condition])

    return _by_parts(verdicts.take), read


def _declared() -> tuple[Take, Read]:
    declared_pipes = DeclaredPipes()

    def read() -> dict[str, Any]:
        for declaration in declared_pipes.declarations.values():
            _json([declaration.state, declaration.body(), declaration.pipe_number])
        return {
            name: declaration.number
            for name, declaration in declared_pipes.declarations.items()
            if declared_pipes.unreadable(name) is None
        }

    return _by_parts(declared_pipes.take_declaration), read


def _rollouts() -> tuple[Take, Read]:
    declared_pipes = DeclaredPipes()
    return _by_parts(declared_pipes.take_status), lambda: _json(
        [status.json() | {"final": status.state.final} for status in declared_pipes.statuses.values()]
    )


def _requests() -> tuple[Take, Read]:
    desired = DesiredReleases()
    return _by_parts(desired.take_request), lambda: _json(dataclasses.asdict(desired.wishes("egest", 7)))


def _releases() -> tuple[Take, Read]:
    desired = DesiredReleases()
    return _by_parts(desired.take_release), lambda: _json(
        [dataclasses.asdict(release) for release in desired.releases.values()]
    )


def _deployments() -> tuple[Take, Read]:
    desired = DesiredReleases()
    return _by_parts(desired.take_deployment), lambda: _json(
        [deployed.json() | {"settled": deployed.settled} for deployed in desired.deployments.values()]
    )


def _principals() -> tuple[Take, Read]:
    principals = Principals()

    def read() -> dict[str, Any]:
        for principal in principals.by_name.values():
            _json(principal.json())
            principals.of_hash(principal.token_sha256, NOW_US)
        _json([person.json() for person in principals.revoked.values()])
        people = {"oidc:bob"} - principals.revoked.keys()
        return dict(principals.by_name) | dict.fromkeys(people)

    return _by_parts(principals.take), read


def _audit() -> tuple[Take, Read]:
    audit = Audit()
    return _by_parts(audit.take), lambda: _json([entry.json() for entry in audit.entries.values()])


def _colour_log() -> tuple[Take, Read]:
    log = ColourLog("k", CONTROL, "c")
    return _by_parts(log._take_record), lambda: _json(log.newest and log.newest.json())


def _source_colour() -> tuple[Take, Read]:
    colour = SourceColour(_SETTINGS, Health("collect", ""))
    return _by_parts(colour._take_record), lambda: colour.reads


def _colours_view() -> tuple[Take, Read]:
    view = ColoursView(_SETTINGS, {})
    return _by_parts(view._take), lambda: _json(view.json())


def _step_times() -> tuple[Take, Read]:
    times_log = StepTimesLog(_SETTINGS)
    handlers = {topic: _by_parts(take) for topic, take in times_log._topics.items()}

    def read() -> Any:
        _json(times_log.own_times("p", None).encode())
        return dict(times_log._times), times_log._colours, times_log.other("p", 1)[1]

    return lambda record: handlers[record.topic](record), read


def _schemas() -> tuple[Take, Read]:
    registered = Registered()

    def read() -> bytes:
        for version in registered.all():
            registered.of_id(version.id)
            registered.referrers(version)
            assert registered.id_of(version.body) is not None
            with contextlib.suppress(RegistryRefusal):
                registered.read(version.body)
        versions = [version.json() | {"deleted": version.deleted} for version in registered.all()]
        return _json([versions, registered.level("a"), registered.level(None), registered.last_id])

    return _by_parts(registered.take), read


_LIVE: Final[Mapping[str, Any]] = {
    "at": 1,
    "reached": 1,
    "counts": {"flights": {"raw": 3}},
    "dead_letters": {},
    "lags": {},
    "waiting": [["flights", "d", "30s", 3]],
    "backlogs": {"egest": {"records": 1, "uncommitted": 1, "seconds": 0.5, "committed": 1, "processed": 2}},
    "streaks": [],
    "successes": [["flights", "d", 5]],
    "breakers": [],
    "skipped": {},
    "ack_reported": 0,
    "foreign": 0,
    "too_late": 0,
}
_MARKER: Final = {
    "minute": MINUTE,
    "gaps": {str(MINUTE): 5},
    "answers": {str(MINUTE): [1, 2]},
    "paused": {str(MINUTE): {"flights": 1}},
    "through": {"s.raw": 5},
    "restart": {"s.raw": 4},
    "told": MINUTE,
}
_OPEN_ROW: Final = {
    "pipe": "flights",
    "minute": MINUTE + 1,
    "delivered": 1,
    "dead": 0,
    "duplicates": 0,
    "lags": {"k": [1], "c": [1], "sum": 1, "min": 1, "max": 1},
    "steps": {"egest": [1, 2]},
}
_MINUTES: Final = [
    (record_keys.minute("flights", MINUTE), merged(3, 2)),
    (record_keys.part("flights", MINUTE, 0), share(3, 1)),
    (record_keys.closed(0), _json(_MARKER)),
    (record_keys.live(0), _json(_LIVE)),
    (record_keys.open_minutes(0), _json({"rows": [_OPEN_ROW]})),
    (record_keys.day("flights", 18_750), _json({"runs": [[0, 1440, "up"]], "counts": {"in": 3}})),
    (record_keys.usage("flights", 18_750), _json({"through": 5, "events": 3, "bytes": 9, "deliveries": 2})),
    (record_keys.front(MINUTE), _json({"failed": 1, "rejected": 2, "gap_s": 0})),
    (record_keys.watermark(0), _json(part())),
]
_COLOURS: Final = Colours(
    {
        name: Colour(share, ColourState.ACTIVE, ("http://i",), "http://o", "k", left_open=({"open": 1},))
        for name, share in (("blue", 10_000), ("green", 0))
    },
    (FrontAddress("http://f", "/s"),),
    1,
    "ann",
)
_STEP_TIMES: Final = ColourTimes(1, 2, 3, (Interval(4, 5),))
_PROGRESS: Final = Progress("declaration", "flights", 7, {0: 12}, own_times=_STEP_TIMES)
_VERSIONS: Final = (
    Version("a", 1, 1, SchemaBody('{"type":"record","name":"a","fields":[]}')),
    Version("b", 1, 2, SchemaBody('["null","a"]', (Reference("a", "a", 1),))),
)
_NEXT: Final = NextRevision(revision=2, share=100)
_ANN: Final = Principal("ann", Role.OPERATOR, ("p",), token_sha256("token"), NOW_US * 2, "test", 1)
_USE: Final = [(b"ann", b'{"at_us":5}')]
_COLOUR_RECORD: Final = _pairs(_COLOURS.record())
_CERTIFICATE: Final = CertificateInUse("egest", "server", Expiry(_NOW_S + 9, "/c.pem"), _NOW_S - 1)
_STATEMENT: Final = [(key_of("p", "d"), _json(stated(part(), part())))]
_DESTINATION: Final = DestinationName("p", "d")

FOLLOWED: Final[Mapping[str, Followed]] = {
    "pipes": Followed(
        TOPICS.pipes,
        _registry,
        _pairs(stream_record(3), body_record(_PIPE, 2), pipe_record(_PIPE, following=_NEXT)),
        (Exception,),  # it holds the pipe, whatever the error is
        withdraws=True,
    ),
    "pipes, by lake": Followed(
        TOPICS.pipes,
        _held_tables,
        [(b"p", b'{"pipe":{"destinations":[{"name":"d","kind":"iceberg"}]}}')],
        (),
    ),
    "destinations": Followed(
        TOPICS.destinations,
        _destinations,
        _pairs(
            state_record(_DESTINATION, StateChange(DestinationState.PARKED, "operator", "r", 5)),
            position_record(_DESTINATION, 0, 7),
        ),
    ),
    "write keys": Followed(
        TOPICS.write_keys, _issued_keys, _pairs(*(key.record() for key in _KEYS)), withdraws=True
    ),
    "write keys of a colour": Followed(
        TOPICS.write_keys, _key_stream, _pairs(*(key.record() for key in _KEYS)), withdraws=True
    ),
    "uses of keys": Followed(TOPICS.key_uses, _last_uses, _USE),
    "usage of keys": Followed(TOPICS.key_usage, _key_usage, [(b"p/k/20000/i", b'{"events":5,"bytes":9}')]),
    "certificates": Followed(
        TOPICS.certificates, _certificates, _pairs(report_record("egest-1", "egest", [_CERTIFICATE]))
    ),
    "minutes": Followed(TOPICS.minutes, _minutes, _MINUTES, (KeyError, TypeError, ValueError)),
    "minutes of a ledger": Followed(TOPICS.minutes, _ledger, _MINUTES, ()),
    "watermarks": Followed(TOPICS.watermarks, _watermarks, _STATEMENT),
    "watermarks, by destinations": Followed(TOPICS.watermarks, _published_watermarks, _STATEMENT),
    "alarms": Followed(
        TOPICS.alarms,
        _alarms,
        [
            (b"a1", _json({**Alarm("a1", "loss", "p", "", "c", 5).json(), "told": ["email"]})),
            (b"a2", _json(Alarm("a2", "lag", "p", "", "c", 6).json())),
            (b"silence/s1", _json(dataclasses.asdict(AlarmSilence("s1", "r", 0, NOW_US * 2, "loss")))),
        ],
    ),
    "progress of sources": Followed(TOPICS.source_progress, _source_entries, [(b"p;table;e", b'{"at":5}')]),
    "folds": Followed(TOPICS.folds, _step_accounting, [(b"p", _PROGRESS.encode())]),
    "folds of a step": Followed(TOPICS.folds, _fold_log, [(b"p", _PROGRESS.encode())], ()),
    "positions": Followed(
        TOPICS.source_positions,
        _source_positions,
        [(b"p;s/0", b'{"highest":5,"through":3,"runs":[[1,"r",-1],[2,"t",4]]}')],
    ),
    "replays": Followed(TOPICS.replays, _replay_notes, [(None, b'{"offsets":[1,2],"works":["00ff"]}')]),
    "actions": Followed(
        CONTROL.actions,
        _actions,
        [(None, action.encode(Action("deploy", ActionKind.DEPLOY, "service/egest", "s", "", 1, 2)))],
    ),
    "health": Followed(
        CONTROL.health,
        _verdicts,
        [(b"stream", Verdict("stream", Condition.STABLE, 1, NOW_US, ("r",), {"lost": 1.0}).encode())],
    ),
    "declared": Followed(
        CONTROL.declared,
        _declared,
        _pairs(Declaration("p", _PIPE, "ann", 1).record()),
        withdraws=True,
    ),
    "requests": Followed(
        CONTROL.requests,
        _requests,
        _pairs(Request("service/egest", 7, RequestKind.FORCE, "ann", 1, 2).record()),
    ),
    "rollouts": Followed(
        CONTROL.rollouts,
        _rollouts,
        _pairs(RolloutStatus("p", 7, "ann", RolloutState.RAMPING, 2, 100, "", 1).record()),
    ),
    "releases": Followed(
        CONTROL.releases, _releases, _pairs(DesiredRelease("egest", "0.2.0", "ann", 1).record())
    ),
    "deployments": Followed(
        CONTROL.deployments,
        _deployments,
        _pairs(Deployment("egest", 7, "a", "b", "ann", DeploymentState.CANARY, "egest-2", "", 1).record()),
    ),
    "principals": Followed(
        CONTROL.principals,
        _principals,
        _pairs(_ANN.record(), RevokedPerson("oidc:bob", "ann", 1).record()),
        withdraws=True,
    ),
    "last used": Followed(CONTROL.last_used, _last_uses, _USE),
    "audit": Followed(CONTROL.audit, _audit, _pairs(AuditEntry("ann", "declare", "pipe/p", 1).record())),
    "colours": Followed(CONTROL.colours, _colour_log, _COLOUR_RECORD),
    "colours, by collect": Followed(CONTROL.colours, _source_colour, _COLOUR_RECORD),
    "colours, by observe": Followed(CONTROL.colours, _colours_view, _COLOUR_RECORD),
    "colours, by state": Followed(CONTROL.colours, _step_times, _COLOUR_RECORD),
    "times of steps": Followed(
        CONTROL.step_times,
        _step_times,
        [(b"p/green", _json(_STEP_TIMES.encode()))],
        (KeyError, TypeError, ValueError),
    ),
    "certificates of fronts": Followed(
        CONTROL.certificates, _certificates, _pairs(report_record("front", "front", [_CERTIFICATE]))
    ),
    "schemas": Followed(
        CONTROL.schemas,
        _schemas,
        _pairs(
            *(version.record() for version in _VERSIONS),
            level_record("a", Level.FULL),
            last_id_record(2),
        ),
    ),
}
"""For people, to the follower."""
