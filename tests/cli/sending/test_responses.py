import orjson
import pytest

from hifi.runtime.errors import Misconfigured
from hifi_cli.sending.batches import RequestBatch
from hifi_cli.sending.event_files import FileEvent
from hifi_cli.sending.responses import decide


def batch(count=4):
    events = [FileEvent(number, b'{"n":%d}' % number) for number in range(1, count + 1)]
    return RequestBatch("run-1", events, 40)


def outcome_body(*outcomes):
    events = [
        {"index": index, "id": f"id-{index}", "outcome": outcome} for index, outcome in enumerate(outcomes)
    ]
    return orjson.dumps({"detail": "partly", "events": events})


def test_accepted_is_done():
    decision = decide(batch(), 202, {}, b"{}")
    assert (decision.accepted, decision.retry, decision.refused, decision.unknown) == (4, [], [], [])


@pytest.mark.parametrize("status", [429, 503, 408])
def test_a_request_with_no_accepted_event_is_repeated_with_its_key(status):
    request = batch()
    decision = decide(request, status, {"retry-after": "3"}, b'{"detail": "later"}')
    assert decision.retry == [request]
    assert decision.wait_s == 3


def test_retry_after_is_bounded_and_defaults_to_a_second():
    assert decide(batch(), 503, {"retry-after": "86400"}, b"").wait_s == 30
    assert decide(batch(), 503, {"retry-after": "Fri, 31 Dec 1999 23:59:59 GMT"}, b"").wait_s == 1
    assert decide(batch(), 503, {}, b"").wait_s == 1


def test_of_a_partly_accepted_request_only_the_rest_is_repeated():
    decision = decide(batch(), 503, {}, outcome_body("accepted", "refused", "unknown", "refused"))
    assert decision.accepted == 1
    assert [[event.number for event in batch.items] for batch in decision.retry] == [[2, 4]]
    assert decision.retry[0].key != "run-1", (
        "other places in the request would give other ids under the same key"
    )
    assert [(event.number, name) for event, name in decision.unknown] == [(3, "id-2")]


def test_a_request_with_unknown_outcome_is_repeated_unchanged_so_that_its_ids_stay_the_same():
    request = batch(2)
    assert decide(request, 503, {}, outcome_body("unknown", "refused")).retry == [request]


@pytest.mark.parametrize("status", [400, 413, 422])
def test_refused_events_are_left_out_and_the_others_sent_again(status):
    problem = orjson.dumps(
        {"events": [{"index": 1, "detail": "no object"}, {"index": 3, "detail": "too large"}]}
    )
    decision = decide(batch(), status, {}, problem)
    assert decision.refused == [(2, "no object"), (4, "too large")]
    assert [[event.number for event in batch.items] for batch in decision.retry] == [[1, 3]]


def test_a_request_that_is_too_large_is_halved_down_to_the_single_event():
    decision = decide(batch(3), 413, {}, b'{"detail": "the body exceeds"}')
    assert [[event.number for event in half_batch.items] for half_batch in decision.retry] == [[1], [2, 3]]
    single = decide(batch(1), 413, {}, b'{"detail": "the body exceeds"}')
    assert single.refused == [(1, "the body exceeds")]
    assert single.retry == []


@pytest.mark.parametrize("status", [400, 401, 404, 415, 500, 302])
def test_a_permanent_error_ends_the_command_with_the_message_of_ingest(status):
    with pytest.raises(Misconfigured, match=f"ingest answers {status}: a valid key"):
        decide(batch(), status, {}, b'{"detail": "a valid key"}')
    with pytest.raises(Misconfigured, match=f"ingest answers {status}"):
        decide(batch(), status, {}, b"<html>")
