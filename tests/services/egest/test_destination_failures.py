"""Every failure of a destination has one outcome, and no event is lost."""

import time
from collections import Counter
from typing import Any

import pytest
from tests.support.egest.egest_stream import EgestStream, outcomes, pipe, running_egest, texts, until
from tests.support.egest.fake_destination import OK, ReceivedRequest, Reset, answer, destination

from hifi.record.headers import (
    AMBIGUOUS,
    ATTEMPT,
    BREAKER,
    DESTINATION,
    DETAIL,
    DUE,
    OUTCOME,
    PASS,
    REASON,
    SERVICE,
    SOURCE,
    STATUS,
)


def says(data: bytes | None):
    async def reply(_: ReceivedRequest) -> bytes | None:
        return data

    return reply


async def resets(_: ReceivedRequest) -> bytes | None:
    raise Reset


async def first_receipt(stream: EgestStream, reply: Any, **options: Any) -> dict[str, str]:
    async with destination(reply) as receiver, running_egest(stream, pipe(receiver.url, **options)):
        await stream.send(1)
        return (await stream.receipts(1))[0]


ONCE = {"local_attempts": 1}


@pytest.mark.parametrize(
    ("reply", "reason", "ambiguous"),
    [
        (says(answer(500)), "status-500", None),
        (says(answer(408)), "status-408", None),
        (says(answer(429)), "status-429", None),
        (says(None), "timeout", "1"),
        (resets, "reset", "1"),
        (says(b"HTTP/1.1 2"), "closed", "1"),
    ],
)
async def test_what_may_pass_by_itself_goes_to_the_retrier(
    stream: EgestStream, reply: Any, reason: str, ambiguous: str | None
) -> None:
    async with (
        destination(reply) as receiver,
        running_egest(stream, pipe(receiver.url, timeout=0.3, retry=ONCE)),
    ):
        receiver.closes = True
        await stream.send(1, key="k")
        (receipt,) = await stream.receipts(1)
        (retry,) = await stream.at_least(stream.topics.retry_in(stream.topics.tiers[0]), 1)
    headers = texts(retry)
    assert receipt[OUTCOME] == "retry"
    assert receipt[REASON] == headers[REASON]
    assert receipt[REASON] in {reason, "closed" if reason == "reset" else reason}
    assert receipt.get(AMBIGUOUS) == headers.get(AMBIGUOUS) == ambiguous
    assert headers[DESTINATION] == "d"
    assert (headers[ATTEMPT], headers[PASS]) == ("1", "0")
    assert headers["ce_id"] == "0"
    assert headers[SOURCE] == "enriched:0"
    assert (retry.key, retry.value) == (b"k", b'{"number":0}')


async def test_no_connection_goes_to_the_retrier_and_is_not_ambiguous(stream: EgestStream) -> None:
    async with destination() as closed_receiver:
        url = closed_receiver.url
    async with running_egest(stream, pipe(url, retry=ONCE)):
        await stream.send(1)
        (receipt,) = await stream.receipts(1)
    assert (receipt[OUTCOME], receipt[REASON]) == ("retry", "connect")
    assert AMBIGUOUS not in receipt


@pytest.mark.parametrize(
    ("status", "headers"),
    [(302, ["Location: http://127.0.0.1:9/"]), (400, []), (404, []), (410, []), (422, [])],
)
async def test_a_refusal_is_a_dead_letter(stream: EgestStream, status: int, headers: list[str]) -> None:
    async with (
        destination(says(answer(status, *headers))) as receiver,
        running_egest(stream, pipe(receiver.url)),
    ):
        await stream.send(1, key="k")
        (receipt,) = await stream.receipts(1)
        (letter,) = await stream.at_least(stream.topics.dead_letter, 1)
        assert len(receiver.requests) == 1, "redirects are not followed, refusals not repeated"
    headers_of = texts(letter)
    assert (receipt[OUTCOME], receipt[STATUS]) == ("dead-letter", str(status))
    assert headers_of[REASON] == f"status-{status}"
    assert (headers_of[SERVICE], headers_of[DESTINATION]) == ("egest", "d")
    assert (letter.key, letter.value) == (b"k", b'{"number":0}')


async def delivered_on_the_spot(stream: EgestStream) -> dict[str, str]:
    """Send events until one is delivered within the second in which egest repeats a request itself; its receipt."""
    for number in range(20):
        await stream.send(1)
        receipt = (await stream.receipts(number + 1))[-1]
        if receipt[OUTCOME] == "delivered":
            return receipt
    raise AssertionError(f"20 events were not delivered on the spot; the last one: {receipt}")


async def test_a_2xx_after_the_time_out_is_flagged_as_what_may_arrive_twice(stream: EgestStream) -> None:
    calls: Counter[str] = Counter()

    async def late_at_first(request: ReceivedRequest) -> bytes | None:
        (event_id,) = request.ids
        calls[event_id] += 1
        if calls[event_id] == 1:
            await until(lambda: calls[event_id] > 1)
        return OK

    async with destination(late_at_first) as receiver, running_egest(stream, pipe(receiver.url, timeout=0.3)):
        receipt = await delivered_on_the_spot(stream)
    assert receipt[AMBIGUOUS] == "1"
    assert receipt[ATTEMPT] == "2"
    assert receiver.ids[-2] == receiver.ids[-1]


async def test_a_hiccup_is_got_over_on_the_spot(stream: EgestStream) -> None:
    calls: Counter[str] = Counter()

    async def twice_not(request: ReceivedRequest) -> bytes:
        (event_id,) = request.ids
        calls[event_id] += 1
        return answer(503) if calls[event_id] < 3 else OK

    async with destination(twice_not) as receiver, running_egest(stream, pipe(receiver.url)):
        receipt = await delivered_on_the_spot(stream)
    assert receipt[ATTEMPT] == "3"
    assert AMBIGUOUS not in receipt


async def test_retry_after_takes_the_largest_tier_not_above_it(stream: EgestStream) -> None:
    receipt = await first_receipt(stream, says(answer(429, "Retry-After: 3")))
    assert receipt[STATUS] == "429"
    (retry,) = await stream.read(stream.topics.retry_in(stream.topics.tiers[1]))
    due_s = int(texts(retry)[DUE]) / 1e6 - time.time()
    assert 0 < due_s <= 3, "1 s is not enough, so it goes round again for the rest"


async def test_a_destination_that_asks_for_a_pause_gets_it(stream: EgestStream) -> None:
    calls: list[ReceivedRequest] = []

    async def pause_at_first(request: ReceivedRequest) -> bytes:
        calls.append(request)
        return answer(503, "Retry-After: 1") if len(calls) == 1 else OK

    flights_pipe = pipe("http://127.0.0.1:9/", concurrency=1)
    async with destination(pause_at_first) as receiver:
        flights_pipe = pipe(receiver.url, concurrency=1)
        async with running_egest(stream, flights_pipe):
            await stream.send(3)
            receipts = await stream.receipts(3)
    assert sorted(outcomes(receipts)) == ["delivered", "delivered", "retry"]
    assert calls[1].at_s - calls[0].at_s > 0.95


async def test_a_pause_of_a_year_is_cut_to_what_is_declared(stream: EgestStream) -> None:
    calls: list[ReceivedRequest] = []

    async def pause_at_first(request: ReceivedRequest) -> bytes:
        calls.append(request)
        return answer(503, "Retry-After: Fri, 31 Dec 9999 23:59:59 GMT") if len(calls) == 1 else OK

    async with (
        destination(pause_at_first) as receiver,
        running_egest(stream, pipe(receiver.url, concurrency=1, retry={"max_pause": "1s"})),
    ):
        await stream.send(3)
        receipts = await stream.receipts(3)
    assert sorted(outcomes(receipts)) == ["delivered", "delivered", "retry"]
    assert 0.95 < calls[1].at_s - calls[0].at_s < 5
    (retry,) = await stream.read(stream.topics.retry_in(stream.topics.tiers[1]))
    assert DUE not in texts(retry), "it comes back with the tier of 1 s and is sent"


async def test_a_long_pause_is_not_waited_for(stream: EgestStream) -> None:
    async with (
        destination(says(answer(429, "Retry-After: 3600"))) as receiver,
        running_egest(stream, pipe(receiver.url, concurrency=1)),
    ):
        await stream.send(50)
        receipts = await stream.receipts(50)
        assert len(receiver.requests) <= 2
    assert outcomes(receipts) == ["retry"] * 50
    assert {receipt[REASON] for receipt in receipts} == {"status-429", "paused"}
    assert {receipt[BREAKER].partition(":")[0] for receipt in receipts} == {"paused"}
    assert len(await stream.read(stream.topics.retry_in(stream.topics.tiers[-1]))) == 50


async def test_the_limits_count_requests_that_were_sent(stream: EgestStream) -> None:
    retry = {"local_attempts": 1, "max_attempts": 2}
    async with (
        destination(says(answer(500))) as receiver,
        running_egest(stream, pipe(receiver.url, retry=retry)),
    ):
        record = stream.record()
        retry_headers = [*record.headers, (DESTINATION, b"d"), (PASS, b"1"), (ATTEMPT, b"1")]
        await stream.producer.send_and_wait(
            stream.topics.retry_out, 0, [type(record)(record.key, record.value, retry_headers)]
        )
        (receipt,) = await stream.receipts(1)
        (letter,) = await stream.read(stream.topics.dead_letter)
    assert (receipt[OUTCOME], receipt[REASON], receipt[ATTEMPT]) == (
        "dead-letter",
        "gave-up",
        "2",
    )
    assert "500" in texts(letter)[DETAIL]


async def test_a_breaker_opens_and_what_comes_then_is_handed_over_without_a_request(
    stream: EgestStream,
) -> None:
    options: dict[str, Any] = {"breaker": {"failures": 3, "probe": "60s"}, "retry": ONCE, "concurrency": 1}
    async with (
        destination(says(answer(500))) as receiver,
        running_egest(stream, pipe(receiver.url, **options)),
    ):
        await stream.send(20)
        receipts = await stream.receipts(20)
        assert len(receiver.requests) == 3
        await stream.send(5)
        receipts = await stream.receipts(25)
        assert len(receiver.requests) == 3
    assert outcomes(receipts) == ["retry"] * 25
    assert {receipt[ATTEMPT] for receipt in receipts if receipt[REASON] == "breaker-open"} == {"0"}


async def test_a_probe_closes_the_breaker(stream: EgestStream) -> None:
    options: dict[str, Any] = {"breaker": {"failures": 2, "probe": "200ms"}, "retry": ONCE, "concurrency": 1}
    async with (
        destination(says(answer(500))) as receiver,
        running_egest(stream, pipe(receiver.url, **options)),
    ):
        await stream.send(2)
        await stream.receipts(2)
        receiver.reply = says(OK)
        count = 2
        while "delivered" not in outcomes(receipts := await stream.receipts(count)):
            await stream.send(1)
            count += 1
        assert receipts
        await stream.send(3)
        receipts = await stream.receipts(count + 3)
    assert outcomes(receipts)[-3:] == ["delivered"] * 3


async def test_credentials_that_ran_out_make_no_dead_letters(stream: EgestStream) -> None:
    options: dict[str, Any] = {"breaker": {"failures": 4, "probe": "60s"}, "concurrency": 2}
    async with (
        destination(says(answer(401))) as receiver,
        running_egest(stream, pipe(receiver.url, **options)),
    ):
        await stream.send(30)
        receipts = await stream.receipts(30)
        assert 4 <= len(receiver.requests) <= 6
    assert outcomes(receipts) == ["retry"] * 30
    assert await stream.read(stream.topics.dead_letter) == []


async def test_one_event_that_is_not_found_is_a_dead_letter_and_the_others_go_on(stream: EgestStream) -> None:
    async def one_not(request: ReceivedRequest) -> bytes:
        return answer(404) if request.ids == ["3"] else OK

    async with destination(one_not) as receiver, running_egest(stream, pipe(receiver.url, concurrency=1)):
        await stream.send(10)
        receipts = await stream.receipts(10)
    assert sorted(outcomes(receipts)) == ["dead-letter"] + ["delivered"] * 9


async def test_a_refused_batch_is_halved_down_to_the_one_event(stream: EgestStream) -> None:
    async def not_seven(request: ReceivedRequest) -> bytes:
        return answer(422) if "7" in request.ids else OK

    async with (
        destination(not_seven) as receiver,
        running_egest(stream, pipe(receiver.url, batch={"size": 16}, concurrency=1)),
    ):
        await stream.send(16)
        receipts = await stream.receipts(16)
        letters = await stream.read(stream.topics.dead_letter)
    assert sorted(outcomes(receipts)) == ["dead-letter"] + ["delivered"] * 15
    assert [texts(letter)["ce_id"] for letter in letters] == ["7"]
    accepted_ids = [
        event_id for request in receiver.requests if "7" not in request.ids for event_id in request.ids
    ]
    assert sorted(accepted_ids, key=int) == [str(n) for n in range(16) if n != 7]
    assert len(receiver.requests) <= 10
