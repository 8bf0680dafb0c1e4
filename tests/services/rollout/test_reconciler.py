"""The next action of each declared pipe, with a stream and a control plane in memory."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, cast

import pytest
from aiokafka import ConsumerRecord

from hifi.control.action import STREAM, Action, ActionHistory
from hifi.control.action_right import ActionRefused, ActionRight
from hifi.control.capacity import MeshRating
from hifi.control.declaration import Declaration
from hifi.control.permission import Permission
from hifi.control.request import Request, RequestKind
from hifi.control.rollout_status import RolloutState, RolloutStatus
from hifi.control.verdict import Condition, Verdict, Verdicts
from hifi.kafka.fenced_writer import FencedWriter, Overtaken
from hifi.kafka.topics import Topics
from hifi.pipe.model import Pipe
from hifi.pipe.registry import PipeRegistry
from hifi.pipe.revision import WHOLE, PipeRevision
from hifi.pipe.secret_manager import SecretMemory
from hifi.record.record import Record
from hifi.runtime.clock import now_us
from hifi.runtime.errors import HifiError, Retryable
from hifi.runtime.health import Health
from hifi_rollout.declared_pipes import DeclaredPipes
from hifi_rollout.ramp import RampRules
from hifi_rollout.reconciler import PipeReconciler

TENTH = WHOLE // 10


def pipe(shape: str, name: str = "flights", key: str | None = None, **sections: Any) -> Pipe:
    """A pipe with one field, and a write key of its own unless it is given."""
    return Pipe.model_validate(
        {
            "pipe": name,
            "source": {"keys": [{"env": key or f"{name.upper()}_KEY"}]},
            "normalize": {"fields": {shape: "n"}},
            "destinations": [{"name": "crm", "url": "http://127.0.0.1:9/"}],
            **sections,
        }
    )


class Right:
    """The right to actions in memory, in place of `ActionRight`.

    Attributes:
        refusal: of all actions, as while another actor acts; empty: none is refused.
    """

    def __init__(self) -> None:
        self.actions: list[Action] = []
        self.refusal = ""

    async def take(
        self,
        action: Action,
        allowed: Callable[[ActionHistory], Permission],
        change: Callable[[int], Awaitable[None]],
    ) -> None:
        permission = allowed(ActionHistory())
        if self.refusal or not permission.granted:
            raise ActionRefused(self.refusal or permission.reason)
        await change(len(self.actions))
        self.actions.append(action)


class Writer:
    """A topic in memory, in place of `FencedWriter`.

    Attributes:
        failure: that a write of records with the key `failing_key` raises.
    """

    def __init__(self, take: Callable[[Record, int], None]) -> None:
        self._take = take
        self._offset = -1
        self.failure: HifiError | None = None
        self.failing_key = b""

    async def write(self, topic: str, records: Sequence[Record]) -> int:
        del topic
        if self.failure is not None and records[0].key.partition(b";")[0] == self.failing_key:  # type: ignore[union-attr]
            raise self.failure
        for record in records:
            self._offset += 1
            self._take(record, self._offset)
        return self._offset


class Stream:
    """A stream in memory with its reconciler."""

    def __init__(self, **rules: Any) -> None:
        self.registry = PipeRegistry("nowhere:1", Topics("s"), Health("rollout", "rollout-1"))
        self.declared, self.verdicts, self.right = DeclaredPipes(), Verdicts(), Right()
        self.pipes_writer, self.rollouts_writer = Writer(self._publish), Writer(lambda _, __: None)
        self._number = -1
        self.reconciler = PipeReconciler(
            pipes_topic="pipes",
            rollouts_topic="rollouts",
            rules=RampRules((TENTH, WHOLE), 60, 20, 600, 0.02, **rules),
            registry=self.registry,
            declared=self.declared,
            verdicts=self.verdicts,
            right=cast("ActionRight", self.right),
            pipes_writer=cast("FencedWriter", self.pipes_writer),
            rollouts_writer=cast("FencedWriter", self.rollouts_writer),
        )
        self.condition = Condition.STABLE

    def _publish(self, record: Record, offset: int) -> None:
        self.registry._apply(
            ConsumerRecord("pipes", 0, offset, offset, 1, record.key, record.value, None, 0, 0, ())
        )

    def declare(self, pipe: Pipe | None, name: str = "flights") -> None:
        newest = self.declared.declarations.get(name)
        replaces = -1 if newest is None else newest.number
        record = Declaration(name, pipe, "ben", now_us(), replaces).record()
        self._number += 1
        self.declared.take_declaration(record.key, record.value, self._number)

    def ask(self, kind: RequestKind, name: str = "flights", share: int = 0) -> None:
        number = self.declared.declarations[name].pipe_number
        record = Request(f"pipe/{name}", number, kind, "ann", now_us(), share).record()
        self.declared.take_request(record.key, record.value, 0)

    async def reconcile(self, times: int = 1) -> None:
        for _ in range(times):
            for scope in (STREAM, *(f"pipe/{revision.pipe.pipe}" for revision in self.registry.all())):
                self.verdicts.put(Verdict(scope, self.condition, 1, now_us()))
            await self.reconciler.reconcile()

    async def put(self, *pipes: Pipe) -> None:
        """Declare pipes and put them into force."""
        for declared_pipe in pipes:
            self.declare(declared_pipe, declared_pipe.pipe)
        await self.reconcile()
        self.right.actions.clear()

    def status(self, name: str = "flights") -> RolloutStatus:
        return self.declared.statuses[name]

    def outcome(self, name: str = "flights") -> tuple[RolloutState, int | None, int, str]:
        status = self.status(name)
        return status.state, status.revision, status.share, status.reason

    def in_force(self, name: str = "flights") -> PipeRevision:
        revision = self.registry.get(name)
        assert revision is not None
        return revision


UNSTABLE = "the stream or the scope is unstable"
ABORTED = (RolloutState.ROLLED_BACK, None, 0, "aborted by ann")
PAUSED = (RolloutState.PAUSED, None, 0, "paused by ann")
WAITING = (RolloutState.WAITING, None, 0, UNSTABLE)


@pytest.mark.parametrize("change", [pipe("b"), None], ids=["a change", "a deletion"])
async def test_what_is_aborted_before_its_first_action_leaves_the_pipe_in_force_as_it_is(
    change: Pipe | None,
) -> None:
    stream = Stream()
    await stream.put(pipe("a"))
    stream.condition = Condition.UNSTABLE
    stream.declare(change)
    await stream.reconcile()
    assert stream.outcome() == WAITING
    stream.ask(RequestKind.ABORT)
    stream.condition = Condition.STABLE
    before = stream.in_force()
    await stream.reconcile(3)
    assert stream.outcome() == ABORTED
    assert (stream.in_force(), stream.right.actions, stream.declared.settled) == (before, [], True)

    stream.declare(change)
    await stream.reconcile()
    assert len(stream.right.actions) == 1, "declared again, it is not aborted"


async def test_a_new_pipe_that_is_aborted_is_not_put_into_force() -> None:
    stream = Stream()
    stream.condition = Condition.UNSTABLE
    stream.declare(pipe("a"))
    await stream.reconcile()
    stream.ask(RequestKind.ABORT)
    stream.condition = Condition.STABLE
    await stream.reconcile(2)
    assert (stream.outcome(), stream.registry.all(), stream.right.actions) == (ABORTED, [], [])


async def test_a_new_pipe_keeps_its_rate_when_a_change_of_it_is_aborted_before_it_begins() -> None:
    stream = Stream(new_pipe_per_s=1000)
    await stream.put(pipe("a"))
    stream.ask(RequestKind.FORCE, share=TENTH)
    await stream.reconcile()
    stream.condition = Condition.UNSTABLE
    stream.declare(pipe("b"))
    await stream.reconcile()
    stream.ask(RequestKind.ABORT)
    await stream.reconcile(2)
    cap = stream.in_force().cap
    assert cap is not None
    assert (stream.outcome(), cap.share, stream.in_force().pipe) == (ABORTED, WHOLE, pipe("a"))


@pytest.mark.parametrize("change", [pipe("b"), None], ids=["a change", "a deletion"])
async def test_what_replaces_a_rollout_ends_it_even_if_it_is_aborted(change: Pipe | None) -> None:
    stream = Stream()
    await stream.put(pipe("a"))
    stream.declare(pipe("c"))
    await stream.reconcile()
    assert stream.in_force().rollout is not None
    stream.condition = Condition.UNSTABLE
    stream.declare(change)
    stream.ask(RequestKind.ABORT)
    await stream.reconcile(3)
    assert stream.outcome() == ABORTED
    assert (stream.in_force().pipe, stream.in_force().rollout) == (pipe("a"), None)
    assert [action.reason for action in stream.right.actions][1:] == ["declaration 2 replaces it"]


@pytest.mark.parametrize(
    ("change", "summary"),
    [
        (pipe("b"), "a revision after 1: 0 % to 10 %"),
        (None, "delete"),
        (pipe("n", "new"), "a new pipe: all events"),
    ],
    ids=["a change", "a deletion", "a new pipe"],
)
async def test_what_is_paused_before_its_first_action_waits_until_it_is_resumed_or_forced(
    change: Pipe | None, summary: str
) -> None:
    stream = Stream()
    await stream.put(pipe("a"))
    name = "flights" if change is None else change.pipe
    stream.declare(change, name)
    stream.ask(RequestKind.PAUSE, name)
    await stream.reconcile(2)
    assert (stream.outcome(name), stream.right.actions) == (PAUSED, [])
    stream.ask(RequestKind.RESUME, name)
    stream.condition = Condition.UNSTABLE
    await stream.reconcile()
    assert stream.outcome(name) == WAITING
    stream.ask(RequestKind.PAUSE, name)
    stream.ask(RequestKind.FORCE, name)
    await stream.reconcile()
    assert [(action.step, action.forced_by) for action in stream.right.actions] == [(summary, "ann")]


async def test_a_rollout_that_is_resumed_is_not_called_paused_while_it_waits() -> None:
    stream = Stream()
    await stream.put(pipe("a"))
    stream.declare(pipe("b"))
    await stream.reconcile()
    stream.ask(RequestKind.PAUSE)
    await stream.reconcile()
    assert stream.status().state is RolloutState.PAUSED
    stream.ask(RequestKind.RESUME)
    stream.ask(RequestKind.FORCE, share=TENTH)
    stream.right.refusal = "deploy acts"
    await stream.reconcile()
    assert stream.outcome() == (RolloutState.RAMPING, 2, TENTH, "deploy acts")


async def test_a_pipe_whose_action_fails_holds_up_no_other_and_says_why() -> None:
    stream = Stream()
    await stream.put(pipe("a", "first"), pipe("a"))
    for name in ("first", "flights"):
        stream.declare(pipe("b", name), name)
    stream.pipes_writer.failing_key, stream.pipes_writer.failure = b"first", Retryable("too large")
    with pytest.raises(Retryable, match="too large"):
        await stream.reconcile()
    assert stream.outcome("first") == (RolloutState.WAITING, None, 0, "too large")
    assert stream.outcome() == (RolloutState.RAMPING, 2, TENTH, "the phase has begun")
    stream.pipes_writer.failure = None
    await stream.reconcile()
    assert stream.status("first").state is RolloutState.RAMPING


@pytest.mark.parametrize("failure", [Overtaken("another instance"), Retryable("Kafka is away")])
async def test_a_service_that_is_overtaken_or_can_write_no_status_goes_on_with_no_other_pipe(
    failure: HifiError,
) -> None:
    stream = Stream()
    await stream.put(pipe("a", "first"), pipe("a"))
    for name in ("first", "flights"):
        stream.declare(pipe("b", name), name)
    for writer in (stream.pipes_writer, stream.rollouts_writer):
        writer.failing_key, writer.failure = b"first", failure
    with pytest.raises(type(failure)):
        await stream.reconcile()
    assert stream.in_force().rollout is None


async def test_a_write_key_is_refused_that_a_pipe_in_force_or_in_its_rollout_is_declared_with() -> None:
    stream = Stream()
    await stream.put(pipe("a", key="OLD"))
    stream.declare(pipe("b", key="NEW"))
    await stream.reconcile()
    assert stream.in_force().rollout is not None
    stream.declare(pipe("a", "trains", "NEW"), "trains")
    await stream.reconcile()
    assert stream.status("trains").state is RolloutState.REFUSED
    assert "the pipe 'flights' has the same write key" in stream.status("trains").reason
    stream.declare(pipe("c", key="NEW"))
    await stream.reconcile(2)
    assert stream.status().state is RolloutState.RAMPING, "its own revisions may have it"


@pytest.mark.parametrize("change", [pipe("b", key="NEW"), None], ids=["a change", "a deletion"])
async def test_a_write_key_is_waited_for_that_its_pipe_is_declared_without(change: Pipe | None) -> None:
    stream = Stream()
    await stream.put(pipe("a", key="OLD"))
    stream.declare(change)
    stream.declare(pipe("a", "trains", "OLD"), "trains")
    stream.condition = Condition.UNSTABLE
    await stream.reconcile()
    assert stream.outcome("trains") == (
        RolloutState.WAITING,
        None,
        0,
        "a write key belongs to flights until the newest declaration there, without it, is in force",
    )
    stream.condition = Condition.STABLE
    for share in (0, TENTH, WHOLE):
        stream.ask(RequestKind.FORCE, share=share)
    await stream.reconcile(4)
    assert stream.status("trains").state is RolloutState.IN_FORCE


async def test_a_pipe_that_waits_for_capacity_is_aborted() -> None:
    stream = Stream(rating=MeshRating(100))
    limited_pipe = pipe("a", source={"keys": [{"env": "KEY"}], "quota": {"events": "90/s"}})
    stream.declare(limited_pipe)
    await stream.reconcile()
    assert stream.status().reason.startswith("no capacity for 90 events/s")
    stream.ask(RequestKind.ABORT)
    await stream.reconcile()
    assert stream.outcome() == ABORTED


class Manager:
    """A secret manager that answers or does not."""

    def __init__(self) -> None:
        self.away = True

    def read(self, name: str) -> str:
        if self.away:
            raise Retryable("Vault is sealed")
        return f"{name}'s value"


async def test_a_mask_waits_for_a_vault_that_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    manager = Manager()
    memory = SecretMemory(manager)
    for module in ("hifi.pipe.secret", "hifi_rollout.checks"):
        monkeypatch.setattr(f"{module}.secret_memory", lambda: memory)
    monkeypatch.setenv("HIFI_PIPES_SECRET_GRANTS", "*=*,flights=vault:masks")
    stream = Stream()
    stream.declare(pipe("a", normalize={"mask": {"email": {"hash": {"vault": "masks/email#key"}}}}))
    await stream.reconcile()
    reason = "the key of a new mask cannot be read yet: Vault is sealed"
    assert stream.outcome() == (RolloutState.WAITING, None, 0, reason)
    manager.away = False
    memory.refresh()
    await stream.reconcile()
    assert stream.status().state is RolloutState.IN_FORCE
