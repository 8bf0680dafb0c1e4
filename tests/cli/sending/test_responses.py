import orjson
import pytest

from hifi.runtime.errors import Misconfigured
from hifi_cli.sending.batches import RequestBatch
from hifi_cli.sending.event_files import FileEvent
from hifi_cli.sending.responses import decide


def batch(count=4, tries=1):
    events = [FileEvent(number, b'{"n":%d}' % number) for number in range(1, count + 1)]
    return RequestBatch("run-1", events, 40, tries)


def outcome_body(*outcomes):
    events = [
        {"index": index, "id": f"id-{index}", "outcome": outcome} for index, outcome in enumerate(outcomes)
    ]
    return orjson.dumps({"detail": "partly", "events": events})


def test_accepted_is_done():
    decision = decide(batch(), 202, {}, b"{}")
    assert (decision.accepted, decision.retry, decision.refused, decision.obstacle) == (4, [], [], "")


@pytest.mark.parametrize("status", [408, 429, 500, 502, 503, 504])
def test_a_request_with_no_accepted_event_is_repeated_with_its_key(status):
    request = batch()
    decision = decide(request, status, {"retry-after": "3"}, b'{"detail": "later"}')
    assert decision.retry == [request]
    assert decision.wait_s == 3
    assert decision.obstacle == f"ingest answers {status}: later"
    decision = decide(request, status, {}, b"<html><body>502 Bad Gateway</body></html>")
    assert decision.retry == [request]
    assert decision.obstacle == f"ingest answers {status}: no reason given"


def test_retry_after_is_bounded_and_defaults_to_a_second():
    assert decide(batch(), 503, {"retry-after": "0"}, b"").wait_s == 0.2
    assert decide(batch(), 503, {"retry-after": "nan"}, b"").wait_s == 0.2
    assert decide(batch(), 503, {"retry-after": "86400"}, b"").wait_s == 30
    assert decide(batch(), 503, {"retry-after": "Fri, 31 Dec 1999 23:59:59 GMT"}, b"").wait_s == 1
    assert decide(batch(), 503, {}, b"").wait_s == 1


def test_of_a_partly_accepted_request_only_the_events_that_kafka_never_got_are_repeated():
    decision = decide(batch(), 503, {}, outcome_body("accepted", "refused", "accepted", "refused"))
    assert decision.accepted == 2
    assert [[event.number for event in batch.items] for batch in decision.retry] == [[2, 4]]
    assert decision.retry[0].key != "run-1", (
        "other places in the request would give other ids under the same key"
    )


@pytest.mark.parametrize(
    ("outcomes", "tries"),
    [
        (("unknown", "refused"), 1),
        (("accepted", "unknown"), 1),
        (("accepted", "unknown", "refused"), 1),
        (("accepted", "refused"), 2),  # the refused event may be in Kafka since the first try
    ],
)
def test_a_request_is_repeated_unchanged_if_it_may_hold_an_event_that_is_in_kafka_but_not_accepted(
    outcomes, tries
):
    request = batch(len(outcomes), tries)
    decision = decide(request, 503, {}, outcome_body(*outcomes))
    assert decision.retry == [request]
    assert decision.accepted == 0, "its events are counted when all of them are accepted"
    assert decide(request, 202, {}, b"{}").accepted == len(outcomes)


@pytest.mark.parametrize("status", [400, 413, 422])
def test_refused_events_are_left_out_and_the_others_sent_again(status):
    problem = orjson.dumps(
        {"events": [{"index": 1, "detail": "no object"}, {"index": 3, "detail": "too large"}]}
    )
    decision = decide(batch(), status, {}, problem)
    assert decision.refused == [(2, "no object"), (4, "too large")]
    assert [[event.number for event in batch.items] for batch in decision.retry] == [[1, 3]]


def test_the_keys_of_what_remains_of_a_request_stay_short_and_differ():
    request, keys, refused_count = batch(10_000), ["run-1"], 0
    while True:
        body = {
            "events": [{"index": index, "detail": "bad"} for index in range(1, len(request.items), 2)][:100]
        }
        decision = decide(request, 400, {}, orjson.dumps(body))
        refused_count += len(decision.refused)
        [request] = decision.retry
        keys.append(request.key)
        if len(request.items) == 1:
            break
    assert refused_count == 9_999
    assert max(map(len, keys)) < 30, "ingest takes 200 characters"
    assert len(set(keys)) == len(keys) > 100


def test_a_request_that_is_too_large_is_halved_down_to_the_single_event():
    decision = decide(batch(3), 413, {}, b'{"detail": "the body exceeds"}')
    assert [[event.number for event in half_batch.items] for half_batch in decision.retry] == [[1], [2, 3]]
    single = decide(batch(1), 413, {}, b'{"detail": "the body exceeds"}')
    assert single.refused == [(1, "the body exceeds")]
    assert single.retry == []


@pytest.mark.parametrize("status", [400, 401, 404, 415, 501, 302])
def test_a_permanent_error_ends_the_command_with_the_message_of_ingest(status):
    with pytest.raises(Misconfigured, match=f"ingest answers {status}: a valid key"):
        decide(batch(), status, {}, b'{"detail": "a valid key"}')
    with pytest.raises(Misconfigured, match=f"ingest answers {status}"):
        decide(batch(), status, {}, b"<html>")
