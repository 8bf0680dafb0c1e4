"""A repeated event is recognized for exactly the length of the window."""

from hypothesis import given as drawn
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from hifi_normalize.idempotency.fingerprint import Fingerprint
from hifi_normalize.idempotency.fingerprint_window import FingerprintWindow, Repetition

WINDOW_MS = 800


class Model(RuleBasedStateMachine):
    """Compares the window with a list of all events; sometimes the window is rebuilt from the written fingerprints."""

    def __init__(self) -> None:
        super().__init__()
        self.window = FingerprintWindow(WINDOW_MS)
        self.passed_fingerprints: list[Fingerprint] = []
        self.written_fingerprints: list[Fingerprint] = []
        self.now_ms = 1_700_000_000_000
        self.offset = 0

    @rule(
        key=st.integers(0, 3),
        data=st.integers(0, 2),
        pause_ms=st.sampled_from([0, 1, 50, 99, 100, 101, 300, 700, 799, 800, 801]),
        copy_of=st.none() | st.integers(0, 5),
    )
    def comes(self, key: int, data: int, pause_ms: int, copy_of: int | None) -> None:
        """An event is checked: a new one, or a copy of a recent one."""
        self.now_ms += pause_ms
        self.offset += 1
        fingerprint = Fingerprint(key, data, self.offset, self.now_ms, self.offset)
        if copy_of is not None and copy_of < len(self.passed_fingerprints):
            original = self.passed_fingerprints[-1 - copy_of]
            fingerprint = original._replace(at_ms=self.now_ms, offset=self.offset)
        same_id = [
            earlier
            for earlier in self.passed_fingerprints
            if earlier.key == fingerprint.key and fingerprint.at_ms - earlier.at_ms <= WINDOW_MS
        ]
        newest_with_id = same_id[-1:]
        same_content = [earlier for earlier in same_id if earlier.data == fingerprint.data]
        superseded = [earlier for earlier in same_content if earlier not in newest_with_id]
        copies = [
            earlier
            for earlier in [
                *(same_content[-1:] if same_content[-1:] == newest_with_id else []),
                *superseded[-1:],
            ]
            if earlier.identity == fingerprint.identity
        ]
        repetition, offset = self.window.check(fingerprint)
        if copies:
            assert (repetition, offset) == (Repetition.COPY, copies[0].offset)
        elif newest_with_id and newest_with_id[0].data == fingerprint.data:
            assert (repetition, offset) == (Repetition.REPEATED, newest_with_id[0].offset)
        else:
            assert repetition is (Repetition.REUSED_ID if same_id else Repetition.NEW)
            assert offset == fingerprint.offset
            self.passed_fingerprints.append(fingerprint)
            self.written_fingerprints.append(fingerprint)

    @rule()
    def is_taken_over(self) -> None:
        """A window rebuilt from the written fingerprints is equivalent."""
        self.window = FingerprintWindow(WINDOW_MS)
        for fingerprint in self.written_fingerprints:
            if fingerprint.at_ms >= self.now_ms - WINDOW_MS:
                self.window.check(fingerprint)

    @rule()
    def is_swept(self) -> None:
        """Expired fingerprints are removed."""
        self.window.expire(self.now_ms)
        recent_fingerprints = [
            earlier
            for earlier in self.passed_fingerprints
            if earlier.at_ms >= self.now_ms - WINDOW_MS * 9 // 8
        ]
        assert len(self.window) <= 2 * len(recent_fingerprints)

    @invariant()
    def is_whole(self) -> None:
        """No fingerprint is removed early."""
        assert self.window.covered_ms(self.now_ms) == WINDOW_MS


TestModel = Model.TestCase
TestModel.settings = settings(max_examples=200, stateful_step_count=40)


@drawn(st.lists(st.integers(1, 200), min_size=1, max_size=50), st.integers(1, 9))
def test_a_shortened_window_recognizes_events_for_the_time_it_reports(
    pauses_ms: list[int], times: int
) -> None:
    window, fingerprints, now_ms = FingerprintWindow(WINDOW_MS), [], 1_000_000
    for offset, pause_ms in enumerate(pauses_ms):
        now_ms += pause_ms
        fingerprints.append(Fingerprint(offset, 0, offset, now_ms, offset))
        window.check(fingerprints[-1])
    for _ in range(times):
        window.shorten()
    covered_ms = window.covered_ms(now_ms)
    for earlier in fingerprints:
        if now_ms - earlier.at_ms < covered_ms:
            repeated = earlier._replace(identity=1000, at_ms=now_ms, offset=1000)
            assert window.check(repeated) == (Repetition.REPEATED, earlier.offset)
    assert window.covered_ms(now_ms + 2 * WINDOW_MS) == WINDOW_MS, (
        "the window is complete again after its length has passed"
    )


def test_states_that_alternate_all_pass_and_each_is_recognized_when_it_is_repeated_at_once() -> None:
    window, offset = FingerprintWindow(WINDOW_MS), 0
    for state in (1, 2, 1, 2, 3, 1, 2, 2, 1):
        for copy in range(3):
            offset += 1
            event = Fingerprint(7, state, offset, 1_000_000 + offset, offset)
            repetition, _ = window.check(event)
            if copy:
                assert repetition is Repetition.REPEATED
            elif offset > 1:
                assert repetition is (Repetition.REPEATED if offset == 22 else Repetition.REUSED_ID)


def test_the_largest_digests_and_offsets_do_not_overlap() -> None:
    window = FingerprintWindow(WINDOW_MS)
    fingerprint = Fingerprint(2**64 - 1, 2**64 - 1, 2**32 - 1, 2**41, 2**40 - 1)
    assert window.check(fingerprint) == (Repetition.NEW, fingerprint.offset)
    assert window.check(fingerprint) == (Repetition.COPY, fingerprint.offset)
    assert window.check(fingerprint._replace(identity=0)) == (Repetition.REPEATED, fingerprint.offset)
    assert window.check(fingerprint._replace(data=0)) == (Repetition.REUSED_ID, fingerprint.offset)
    assert window.check(fingerprint) == (Repetition.COPY, fingerprint.offset)
    assert window.check(fingerprint._replace(identity=0)) == (Repetition.REUSED_ID, fingerprint.offset)
