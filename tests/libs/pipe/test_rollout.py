"""The transitions of a pipe's revisions: which revision an event gets at each moment, also after each single record."""

import pytest
from aiokafka import ConsumerRecord

from hifi.kafka.topics import Topics
from hifi.pipe import rollout
from hifi.pipe.model import Pipe
from hifi.pipe.registry import PipeRegistry, RegistrySnapshot
from hifi.pipe.revision import WHOLE, Rollout, key_position
from hifi.record.record import Record
from hifi.runtime.errors import Misconfigured
from hifi.runtime.health import Health
from hifi_http.declaration import HttpDestination


def pipe(url: str) -> Pipe:
    return Pipe.model_validate(
        {
            "pipe": "flights",
            "source": {"keys": [{"env": "KEY"}]},
            "destinations": [{"name": "crm", "url": f"http://127.0.0.1:9/{url}"}],
        }
    )


class Written:
    """The registry of a reader that has read everything, and the offsets of what was written."""

    def __init__(self) -> None:
        self.registry = PipeRegistry("nowhere:1", Topics("s"), Health("test", "test-1"))
        self.offset = 0

    def write(self, records) -> None:
        for record in records:
            value = record.value
            self.registry._apply(
                ConsumerRecord(
                    "pipes", 0, self.offset, 1000 + self.offset, 1, record.key, value, None, 0, 0, ()
                )
            )
            self.offset += 1

    @property
    def snapshot(self) -> RegistrySnapshot:
        return RegistrySnapshot(
            1,
            dict(self.registry._pipes),
            self.registry.offset,
            {name: sorted(bodies) for name, bodies in self.registry._bodies.items() if bodies},
        )

    def url(self, revision: int) -> str:
        """The destinations of an event of a revision, by the last segment of their path."""
        published = self.registry.of_revision("flights", revision)
        assert published is not None
        destination = published.pipe.destinations[0]
        assert isinstance(destination, HttpDestination)
        return str(destination.url).rpartition("/")[2]

    @property
    def current(self):
        return self.registry.get("flights")


@pytest.fixture
def written() -> Written:
    log = Written()
    log.write(rollout.put_at_once(log.snapshot, pipe("one")))
    return log


def test_a_rollout_gives_each_revision_its_own_declaration(written):
    written.write(rollout.begin(written.snapshot, pipe("two"), 100))
    assert (written.url(1), written.url(2)) == ("one", "two")
    assert written.current.number == 1
    assert (written.current.rollout.next.number, written.current.rollout.share) == (2, 100)
    assert [revision.key for revision in written.registry.in_use()] == ["flights", "flights;2"]


def test_a_change_of_share_changes_no_content(written):
    written.write(rollout.begin(written.snapshot, pipe("two"), 100))
    content, offset = written.registry.content_offset, written.current.offset
    written.write(rollout.change_share(written.snapshot, "flights", 5000))
    assert written.current.rollout.share == 5000
    assert written.registry.content_offset == content
    assert written.current.offset == offset


def test_after_a_promotion_events_of_both_revisions_finish_with_their_own(written):
    written.write(rollout.begin(written.snapshot, pipe("two"), WHOLE))
    offset = written.current.rollout.next.offset
    written.write(rollout.promote(written.snapshot, "flights"))
    assert (written.current.number, written.current.offset) == (2, offset)
    assert written.current.rollout is None
    assert (written.url(1), written.url(2)) == ("one", "two")


def test_after_an_abort_new_events_get_the_old_revision_and_others_finish_with_their_own(written):
    written.write(rollout.begin(written.snapshot, pipe("two"), 1000))
    written.write(rollout.abort(written.snapshot, "flights"))
    assert (written.current.number, written.current.rollout) == (1, None)
    assert (written.url(1), written.url(2)) == ("one", "two")
    written.write(rollout.begin(written.snapshot, pipe("three"), 1000))
    assert written.current.rollout.next.number == 3


def test_what_is_applied_at_once_counts_for_everything_that_waits(written):
    written.write(rollout.begin(written.snapshot, pipe("two"), 1000))
    written.write(rollout.put_at_once(written.snapshot, pipe("three")))
    assert {written.url(revision) for revision in (1, 2, 3)} == {"three"}
    assert written.current.number == 3
    assert written.snapshot.others == {}


def test_a_deleted_pipe_leaves_nothing(written):
    written.write(rollout.begin(written.snapshot, pipe("two"), 1000))
    written.write(rollout.delete(written.snapshot, "flights"))
    assert written.registry.of_revision("flights", 2) is None
    assert written.registry.in_use() == []
    assert written.snapshot.others == {}


@pytest.mark.parametrize("step", ["begin", "change_share", "promote", "abort", "put_at_once", "delete"])
def test_after_each_single_record_of_a_transition_an_event_has_exactly_one_revision(written, step):
    if step != "begin":
        written.write(rollout.begin(written.snapshot, pipe("two"), 1000))
    make = getattr(rollout, step)
    arguments = {
        "begin": (pipe("two"), 1000),
        "change_share": ("flights", 5000),
        "put_at_once": (pipe("two"),),
    }
    for record in make(written.snapshot, *arguments.get(step, ("flights",))):
        written.write([record])
        if step == "delete":
            assert written.current is None
            continue
        assert written.url(1) in {"one", "two"}
        running = written.current.rollout
        if running is not None:  # a reader at the demanded offset knows the revision that ingest stamps
            assert running.next.offset <= written.registry.offset
            assert written.url(running.next.number) == "two"


def test_transitions_that_make_no_sense_say_why(written):
    for make in (rollout.promote, rollout.abort):
        with pytest.raises(Misconfigured, match="no rollout of the pipe flights runs"):
            make(written.snapshot, "flights")
    with pytest.raises(Misconfigured, match="there is no pipe orders"):
        rollout.change_share(written.snapshot, "orders", 1)
    written.write(rollout.begin(written.snapshot, pipe("two"), 1000))
    with pytest.raises(Misconfigured, match="hifi rollout abort flights"):
        rollout.begin(written.snapshot, pipe("three"), 1000)


def test_a_rising_share_moves_keys_to_the_next_revision_only(written):
    written.write(rollout.begin(written.snapshot, pipe("two"), 0))
    following = written.current.rollout.next
    keys = [b"%d" % number for number in range(20_000)]
    keys_before: set[bytes] = set()
    for share in (0, 100, 1000, 5000, WHOLE):
        now = {key for key in keys if Rollout(following, share).gets(key)}
        assert keys_before <= now
        assert len(now) == pytest.approx(len(keys) * share / WHOLE, rel=0.25)
        keys_before = now
    assert len(keys_before) == len(keys)


def test_the_position_of_a_key_is_fixed_for_ever_and_differs_between_pipes():
    assert [key_position("flights", key) for key in (b"", b"UA1545", b"DL461")] == [
        key_position("flights", key) for key in (b"", b"UA1545", b"DL461")
    ]
    assert key_position("flights", b"UA1545") != key_position("orders", b"UA1545")


def test_a_paused_pipe_stays_paused_through_every_transition_and_a_pause_changes_no_revision(written):
    written.write(rollout.begin(written.snapshot, pipe("two"), 1000))
    content, following = written.registry.content_offset, written.current.rollout
    written.write(rollout.change_pause(written.snapshot, "flights", paused=True))
    assert (written.current.paused, written.current.rollout) == (True, following)
    assert written.registry.content_offset == content, "enrich need not plan again"
    for records in (
        lambda: rollout.change_share(written.snapshot, "flights", 5000),
        lambda: rollout.promote(written.snapshot, "flights"),
        lambda: rollout.begin(written.snapshot, pipe("three"), 1000),
        lambda: rollout.abort(written.snapshot, "flights"),
        lambda: rollout.put_at_once(written.snapshot, pipe("four")),
    ):
        written.write(records())
        assert written.current.paused
    revision = written.current.number
    written.write(rollout.change_pause(written.snapshot, "flights", paused=False))
    assert (written.current.paused, written.current.number) == (False, revision)
    with pytest.raises(Misconfigured, match="there is no pipe orders"):
        rollout.change_pause(written.snapshot, "orders", paused=True)


def test_a_new_pipe_can_begin_paused():
    fresh = Written()
    fresh.write(rollout.put_at_once(fresh.snapshot, pipe("one"), paused=True))
    assert fresh.current.paused


def test_a_pipe_is_as_old_as_its_first_record(written):
    assert written.registry.since_ms("flights") == 1000
    written.write(rollout.begin(written.snapshot, pipe("two"), 100))
    written.write(rollout.change_share(written.snapshot, "flights", 5000))
    assert written.registry.since_ms("flights") == 1000
    written.write([Record(b"flights", None, [])])
    assert written.registry.since_ms("flights") is None
