"""On a real Kafka: what was lost is named with its id, restarts and several instances change nothing."""

import asyncio
import os
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import aiohttp
import orjson
import pytest
from tests.support.observe.api_requests import ask, past_minute, until
from tests.support.observe.owner_webhook import hook, secret_file
from tests.support.observe.stream_double import Stream, new_stream
from tests.support.observe_principal import OPERATOR, VIEWER, as_principal
from tests.support.openapi_documents import require_described

from hifi.control.principals.audit import AuditOutcome
from hifi.control.principals.principal_store import audit_entries
from hifi.delivery.destination_state import (
    EGEST,
    DestinationName,
    DestinationState,
    StateChange,
    state_record,
)
from hifi.kafka.admin import create_topics
from hifi.kafka.topics import Topics, parse_tiers, principal_topics
from hifi.pipe.lookup_problems import problems_note
from hifi.record.headers import BREAKER, DESTINATION, OUTCOME, PIPE, REASON, SERVICE, SOURCE, STATUS, STEP, TO
from hifi.record.record import Record
from hifi.runtime.clock import now_us


@pytest.fixture
async def stream(kafka: str):
    async with new_stream(kafka) as stream:
        yield stream


@pytest.mark.more  # the alarm ends after 30 s; its conditions: test_conditions.py
async def test_a_lookup_that_keeps_its_old_table_is_an_alarm_until_it_is_right_again(stream: Stream) -> None:
    minute = past_minute()
    await asyncio.gather(*(stream.events(partition, minute, 5) for partition in range(2)))
    note = problems_note({"flights/airlines": "it has 0 rows instead of 16", "gone/airlines": "it is empty"})
    await asyncio.gather(*(stream.commit(partition, "enrich", note=note) for partition in range(2)))

    def lookups(body: Any) -> list[tuple[str, str, str]]:
        return [
            (alarm["pipe"], alarm["subject"], alarm["cause"])
            for alarm in body["active"]
            if alarm["kind"] == "lookup"
        ]

    async with stream.observing() as (_, url):
        body = await until(url, "/api/v1/alarms", lookups)
        assert lookups(body) == [("flights", "airlines", "it has 0 rows instead of 16")]
        await asyncio.gather(*(stream.commit(partition, "enrich") for partition in range(2)))
        await until(url, "/api/v1/alarms", lambda body: not lookups(body))


async def test_the_very_events_that_were_lost_are_named_at_their_hop(stream: Stream) -> None:
    minute = past_minute()
    await stream.events(0, minute, 100, lose={"normalized": [3, 50], "receipts": [7]})
    await stream.events(1, minute, 50, lose={"raw": [9]})
    await asyncio.gather(stream.commit(0), stream.commit(1))
    async with stream.observing() as (_, url):
        path = f"/api/v1/pipes/flights/minutes/{minute}"
        body = await until(url, path, lambda body: body.get("in") == 150)
        assert (body["lost"], body["delivered"], body["in_flight"]) == (4, 146, 0)
        assert (body["state"], body["causes"]) == ("down", ["loss"])
        lost_events = (await ask(url, path + "/lost"))["lost"]
        assert {
            (event["hop"], event["destination"], event["partition"], event["sequence"], event["ce_id"])
            for event in lost_events
        } == {
            ("normalize", "", 0, 3, "id-0-3"),
            ("normalize", "", 0, 50, "id-0-50"),
            ("egest", "crm", 0, 7, "id-0-7"),
            ("ingest", "", 1, 9, None),
        }


async def test_one_event_can_be_asked_what_became_of_it_and_who_did_not_want_it(stream: Stream) -> None:
    minute = past_minute()
    await stream.events(0, minute, 3, lose={"receipts": [1], "enriched": [2]})
    other_event = stream.fields(0, minute, "cargo") | {"ce_id": b"id-0-0"}
    for topic in ("raw", "normalized", "enriched"):
        await stream.write(topic, 0, [other_event])
    filtered_event = stream.fields(0, minute) | {"ce_id": b"id-0-3"}
    for topic, extra_fields in {
        "raw": {},
        "normalized": {},
        "enriched": {TO: b""},
        "receipts": {OUTCOME: b"filtered", DESTINATION: b"", SOURCE: b"enriched:3"},
    }.items():
        await stream.write(topic, 0, [filtered_event | extra_fields])
    await stream.commit(0)
    async with stream.observing() as (_, url):
        path = f"/api/v1/pipes/flights/minutes/{minute}"
        await until(url, path, lambda body: body.get("in") == 4)

        async def outcomes_of(event_id: str) -> list[tuple[Any, list[str], list[tuple[str, str]]]]:
            events = (await ask(url, f"{path}/event?id={event_id}"))["events"]
            return [
                (
                    event["wanted"],
                    event["not_wanted"],
                    [(outcome["destination"], outcome["outcome"]) for outcome in event["outcomes"]],
                )
                for event in events
            ]

        assert await outcomes_of("id-0-0") == [(["crm"], [], [("crm", "delivered")])]
        assert await outcomes_of("id-0-1") == [(["crm"], [], [])]
        assert await outcomes_of("id-0-2") == [(None, [], [])]
        assert await outcomes_of("id-0-3") == [([], ["crm"], [("", "filtered")])]
        assert await outcomes_of("id-0-9") == []
        assert (await ask(url, f"{path}/event"))["status"] == 400


async def test_an_event_is_found_while_its_minute_is_open(stream: Stream) -> None:
    minute = now_us() // 60_000_000
    async with stream.observing(observe_settle_s=3600) as (_, url):
        path = f"/api/v1/pipes/flights/minutes/{minute}/event?id=id-0-0"
        body = await until(url, path, lambda body: "events" in body)
        assert (body["provisional"], body["events"]) == (True, [])
        await stream.events(0, minute, 2, lose={"receipts": [1]})
        body = await until(url, path, lambda body: body.get("events") and body["events"][0]["outcomes"])
        assert body["provisional"] is True
        [event] = body["events"]
        assert (event["wanted"], [outcome["outcome"] for outcome in event["outcomes"]]) == (
            ["crm"],
            ["delivered"],
        )
        [undelivered] = (await ask(url, path.replace("id-0-0", "id-0-1")))["events"]
        assert (undelivered["wanted"], undelivered["outcomes"]) == (["crm"], [])
        status, out, _ = await command("event", "flights", str(minute), "id-0-0", "--json", "--url", url)
        assert (status, [event["provisional"] for event in orjson.loads(out)]) == (0, [True])
        assert (await ask(url, path.replace("/event?id=id-0-0", "")))["status"] == 404


async def test_what_no_node_committed_past_is_in_flight_and_amends_the_minute_when_it_arrives(
    stream: Stream,
) -> None:
    minute = past_minute()
    await stream.events(0, minute, 20, lose={"enriched": range(20)})
    await stream.commit(0, "normalize")
    async with stream.observing() as (_, url):
        path = f"/api/v1/pipes/flights/minutes/{minute}"
        body = await until(url, path, lambda body: body.get("in") == 20)
        assert (body["lost"], body["in_flight"]) == (0, 20)
        assert [hop["in_flight"] for hop in body["hops"] if hop["hop"] == "enrich"] == [20]
        await stream.commit(0, "enrich")
        body = await until(url, path, lambda body: body["lost"] == 20)
        assert body["in_flight"] == 0


async def test_deliveries_in_a_removed_retry_tier_are_seen_until_they_return(stream: Stream) -> None:
    removed_tiers = parse_tiers("7s")
    await create_topics(
        stream.kafka, Topics(stream.topics.stream, removed_tiers), partitions=2, replication=1
    )
    waiting_events = [stream.fields(0, past_minute()) | {DESTINATION: b"crm"} for _ in range(3)]
    await stream.write("retry-in.7s", 0, waiting_events)
    async with stream.observing() as (_, url):
        body = await until(url, "/api/v1/pipes/flights", lambda body: body["now"]["retrying"])
        (tier,) = [backlog for backlog in body["now"]["waiting"] if backlog["topic"] == "retry-in.7s"]
        assert tier == {"topic": "retry-in.7s", "destination": "crm", "records": 3}


async def test_a_restart_goes_on_with_open_and_closed_minutes(stream: Stream) -> None:
    minute = past_minute()
    await stream.events(0, minute, 30, lose={"normalized": [1]})
    await stream.commit(0)
    path = f"/api/v1/pipes/flights/minutes/{minute}"
    async with stream.observing() as (_, url):
        first_body = await until(url, path, lambda body: body.get("in") == 30)
    await stream.events(0, minute, 5)
    open_minute = now_us() // 60_000_000
    await stream.events(1, open_minute, 10)
    await asyncio.gather(stream.commit(0), stream.commit(1))
    async with stream.observing() as (_, url):
        amended_body = await until(url, path, lambda body: body.get("in") == 35)
        assert (first_body["lost"], amended_body["lost"]) == (1, 1)
        assert (amended_body["late"], amended_body["delivered"], amended_body["duplicates"]) == (5, 34, 0)
    async with stream.observing() as (_, url):
        restarted_body = await until(url, path, lambda body: body.get("in") == 35)
        assert {**restarted_body, "at_us": 0} == {**amended_body, "at_us": 0}


async def test_two_instances_share_the_partitions_and_say_the_same_as_one(kafka: str, stream: Stream) -> None:
    minute = past_minute()
    async with stream.observing() as (first, url), stream.observing() as (second, other_url):
        async with asyncio.timeout(90):
            while not (first.stream.partitions.numbers and second.stream.partitions.numbers):
                await asyncio.sleep(0.05)
        assert first.stream.partitions.numbers | second.stream.partitions.numbers == {0, 1}
        assert not first.stream.partitions.numbers & second.stream.partitions.numbers
        await eighty(stream, minute)
        path = f"/api/v1/pipes/flights/minutes/{minute}"
        body = await until(url, path, lambda body: body.get("in") == 80 and body["lost"] == 3)
        assert await until(other_url, path, lambda answer: answer == body) == body
        lost_by_two = (await ask(other_url, path + "/lost"))["lost"]
    async with new_stream(kafka) as lone_stream:
        await eighty(lone_stream, minute)
        async with lone_stream.observing() as (_, url):
            lone_body = await until(url, path, lambda body: body.get("in") == 80 and body["lost"] == 3)
            figure_names = (
                "in",
                "delivered",
                "in_flight",
                "waiting",
                "dead",
                "duplicates",
                "state",
                "causes",
                "hops",
            )
            assert [lone_body[name] for name in figure_names] == [body[name] for name in figure_names]
            lost_by_one = (await ask(url, path + "/lost"))["lost"]
    event_fields = ("partition", "sequence", "hop", "destination", "ce_id")
    assert [[event[name] for name in event_fields] for event in lost_by_one] == [
        [event[name] for name in event_fields] for event in lost_by_two
    ]


async def eighty(stream: Stream, minute: int) -> None:
    """Events in both partitions, three of them lost at two hops."""
    await stream.events(0, minute, 40, lose={"normalized": [1]})
    await stream.events(1, minute, 40, lose={"receipts": [5, 39]})
    await asyncio.gather(stream.commit(0), stream.commit(1))


async def test_an_alarm_is_posted_signed_and_ends_up_in_the_api(stream: Stream, tmp_path: Path) -> None:
    posted_notices: list[dict[str, Any]] = []
    minute = past_minute() + 1
    await stream.events(0, minute, 10, lose={"normalized": [1]})
    await stream.commit(0)
    webhook_settings: dict[str, Any] = {
        "observe_webhook_secret_file": secret_file(tmp_path),
        "observe_url": "https://observe.example/",
    }
    async with (
        hook(posted_notices) as webhook,
        stream.observing(observe_webhook=webhook, **webhook_settings) as (_, url),
    ):
        body = await until(
            url, "/api/v1/alarms", lambda body: any(alarm["kind"] == "loss" for alarm in body["active"])
        )
        (alarm,) = [entry for entry in body["active"] if entry["kind"] == "loss"]
        assert "lost 1 events at normalize" in alarm["cause"]
        assert alarm["runbook"] == "/runbooks#loss"
        async with asyncio.timeout(60):
            while not any(notice["data"]["kind"] == "loss" for notice in posted_notices):
                await asyncio.sleep(0.02)
    (loss_notice,) = [notice for notice in posted_notices if notice["data"]["kind"] == "loss"]
    assert loss_notice["type"] == "hifi.alarm.started"
    assert loss_notice["data"]["runbook"] == "https://observe.example/runbooks#loss"


async def test_the_breaker_of_a_destination_is_shown_by_every_instance(stream: Stream) -> None:
    receipt_fields = {DESTINATION: b"crm", SOURCE: b"enriched:0"}
    failed_receipt = receipt_fields | {OUTCOME: b"retry", REASON: b"status-503", STATUS: b"503"}
    delivered_receipt = receipt_fields | {OUTCOME: b"delivered", STATUS: b"200"}
    minute = now_us() // 60_000_000

    async def tell(partition: int, extra_fields: dict[str, bytes]) -> None:
        await stream.write("receipts", partition, [stream.fields(partition, minute) | extra_fields])

    def breaker_is(state: str, partitions: int, answer: str | None = None) -> Callable[[Any], bool]:
        def holds(body: Any) -> bool:
            (destination,) = body["destinations"]
            breaker = destination["breaker"]
            return (breaker["state"], breaker["open_partitions"], breaker["answer"]) == (
                state,
                partitions,
                answer,
            )

        return holds

    path = "/api/v1/pipes/flights"
    async with stream.observing() as (first, url), stream.observing() as (second, other_url):
        async with asyncio.timeout(90):
            while not (first.stream.partitions.numbers and second.stream.partitions.numbers):
                await asyncio.sleep(0.05)
        for instance_url in (url, other_url):
            await until(instance_url, path, breaker_is("unknown", 0))
        await tell(0, failed_receipt | {BREAKER: b"open:egest-1"})
        await tell(
            1,
            receipt_fields
            | {
                OUTCOME: b"retry",
                REASON: b"breaker-open",
                BREAKER: b"open:egest-1",
            },
        )
        for instance_url in (url, other_url):
            await until(instance_url, path, breaker_is("open", 2, "503"))
        async with (
            aiohttp.ClientSession(headers=VIEWER) as session,
            session.get(url + "/pipes/flights") as page,
        ):
            text = await page.text()
            assert '<span class="badge bad">open</span> since 20' in text
            assert "answer 503" in text
        await asyncio.sleep(0.01)
        await tell(1, delivered_receipt | {BREAKER: b"closed:egest-1"})
        for instance_url in (url, other_url):
            await until(instance_url, path, breaker_is("closed", 0))


async def test_a_silence_needs_an_operator_and_is_in_the_audit(stream: Stream) -> None:
    async with stream.observing() as (_, url), aiohttp.ClientSession() as session:
        body = {"reason": "new broker", "seconds": 60}
        refusals = [
            ({}, 401),
            ({"authorization": "Bearer wrong"}, 401),
            (VIEWER, 403),
            (as_principal("other"), 403),
        ]
        for headers, status in refusals:
            async with session.post(url + "/api/v1/silences", json=body, headers=headers) as answer:
                assert answer.status == status
        document = await ask(url, "/openapi.json")
        operator = OPERATOR
        invalid_bodies: tuple[Any, ...] = (
            {},
            {"reason": "x", "seconds": 0},
            {"reason": "x", "seconds": 1, "kind": "none"},
            [],
        )
        for invalid_body in invalid_bodies:
            async with session.post(url + "/api/v1/silences", json=invalid_body, headers=operator) as answer:
                assert answer.status == 400
        async with session.post(url + "/api/v1/silences", json=body, headers=operator) as answer:
            assert answer.status == 200
            require_described(document, "POST", "/api/v1/silences", 200, await answer.json())
        alarms = await until(url, "/api/v1/alarms", lambda body: body["silences"])
        assert alarms["silences"][0]["reason"] == "new broker"
    (entry,) = await audit_entries(stream.kafka, principal_topics(stream.topics.stream))
    assert (entry.principal, entry.what, entry.subject) == ("operator", "silence alarms", "alarms/all/all")
    assert entry.outcome is AuditOutcome.DONE
    assert entry.after["id"] == alarms["silences"][0]["id"]


async def write_dead_letters(stream: Stream, count: int, reason: str = "status-400") -> None:
    letters = [stream.fields(0, past_minute()) for _ in range(count)]
    reason_fields = {SERVICE: b"egest", DESTINATION: b"crm", REASON: reason.encode()}
    await stream.write("dead-letter", 0, [letter | reason_fields for letter in letters])


async def test_a_replay_needs_an_operator_and_repeating_it_is_harmless(stream: Stream) -> None:
    await write_dead_letters(stream, 5)
    await write_dead_letters(stream, 3, "status-422")
    of_step = {SERVICE: b"state", STEP: b"carrier-delays"}
    await stream.write("dead-letter", 0, [{PIPE: b"flights", REASON: b"broken", **of_step}])
    path = "/api/v1/pipes/flights/dead/replay"
    async with stream.observing() as (_, url), aiohttp.ClientSession() as session:

        async def order(body: Any, token: str = "token-of-operator", path: str = path) -> tuple[int, Any]:
            bearer = {"authorization": f"Bearer {token}"} if token else {}
            async with session.post(url + path, json=body, headers=bearer) as answer:
                return answer.status, await answer.json(content_type=None)

        async def retried_count() -> int:
            return await stream.size("retry-out")

        async def counts(body: Any) -> tuple[int, int, int]:
            status, answer = await order(body)
            assert status == 200
            return answer["replayed"], answer["already"], answer["refused"]

        for token in ("", "wrong"):
            assert (await order({}, token))[0] == 401
        for name in ("viewer", "data-viewer", "other"):
            assert (await order({}, f"token-of-{name}"))[0] == 403
        invalid_bodies: tuple[Any, ...] = ({"reasons": "x"}, {"ids": []}, {"ids": ["x"]}, {"limit": 0}, [])
        for invalid_body in invalid_bodies:
            assert (await order(invalid_body))[0] == 400
        assert (await order({}, path="/api/v1/pipes/nothing/dead/replay"))[0] == 404
        assert await retried_count() == 0
        assert await counts({"reason": "status-422"}) == (3, 0, 0)
        assert await counts({"reason": "status-422", "destination": "crm", "service": "egest"}) == (0, 3, 0)
        assert await counts({"service": "normalize"}) == (0, 0, 0)
        status, problem = await order({"ids": ["0:0", "0:7", "1:99"]})
        assert (status, problem["replayed"], problem["already"], problem["missing"]) == (200, 1, 1, 1)
        dead_letters = (await ask(url, "/api/v1/pipes/flights/dead"))["dead"]
        assert {letter["id"] for letter in dead_letters if letter["replayed"]} == {"0:0", "0:5", "0:6", "0:7"}
        assert {(letter["service"], letter["step"]) for letter in dead_letters} == {
            ("egest", ""),
            ("state", "carrier-delays"),
        }
        bearer = {"authorization": "Bearer token-of-viewer"}
        async with session.get(f"{url}/pipes/flights/dead", headers=bearer) as page:
            assert 'state for <a href="/pipes/carrier-delays">carrier-delays</a>' in await page.text()
        status, problem = await order({"limit": 2})
        assert (problem["replayed"], problem["already"], problem["more"]) == (2, 1, True)
        assert await counts({}) == (2, 6, 1)
        status, problem = await order({})
        assert (problem["replayed"], problem["already"], problem["more"]) == (0, 8, False)
        assert "0:8" in problem["why"]
        assert await retried_count() == 8
    entries = await audit_entries(stream.kafka, principal_topics(stream.topics.stream))
    assert {(entry.principal, entry.what, entry.subject) for entry in entries} == {
        ("operator", "replay dead letters", "pipe/flights")
    }
    first_entry = entries[1]  # the one before it named no ids that exist
    assert (first_entry.outcome, first_entry.before) == (AuditOutcome.DONE, {"reason": "status-422"})
    assert first_entry.after["replayed"] == 3


async def test_every_path_of_the_document_answers_and_what_is_not_there_is_a_problem(stream: Stream) -> None:
    minute = past_minute()
    await stream.events(0, minute, 3)
    await stream.commit(0)
    answers: dict[str, Awaitable[Any]] = {}
    async with stream.observing() as (_, url), aiohttp.ClientSession(headers=VIEWER) as session:
        await until(url, f"/api/v1/pipes/flights/minutes/{minute}", lambda body: body.get("in") == 3)
        document = await ask(url, "/openapi.json")
        paths = [path for path, methods in document["paths"].items() if "get" in methods]
        paths.remove("/api/v1/pipes/{pipe}/colours")  # of a stream with colours
        pages = [
            "/",
            "/alarms",
            "/runbooks",
            "/pipes/flights",
            "/pipes/flights/dead",
            f"/pipes/flights/minutes/{minute}",
            "/static/plotly.min.js",
        ]
        parameters = {"/api/v1/pipes/{pipe}/minutes/{minute}/event": {"id": "1"}}
        for path in [*paths, *pages]:
            shown_path = path.format(pipe="flights", minute=minute)
            async with session.get(url + shown_path, params=parameters.get(path)) as answer:
                assert answer.status == 200, path
                if path in paths:
                    require_described(document, "GET", shown_path, 200, await answer.json())
        for path, status in [
            ("/api/v1/pipes/nothing", 404),
            ("/api/v1/pipes/flights/minutes/1", 404),
            ("/api/v1/pipes/flights/colours", 404),
            ("/api/v1/pipes/flights/minutes/x", 400),
            ("/api/v1/pipes/flights/minutes?last=0", 400),
        ]:
            async with session.get(url + path) as answer:
                assert (answer.status, answer.content_type) == (status, "application/problem+json"), path
                problem = await answer.json(content_type=None)
                require_described(document, "GET", path.partition("?")[0], status, problem)
    assert not answers


async def command(*words: str) -> tuple[int, bytes, bytes]:
    """Exit status, standard output and error of one of the commands that ask observe."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "hifi_cli",
        *words,
        stdout=-1,
        stderr=-1,
        env=os.environ | {"HIFI_TOKEN": "token-of-viewer"},
    )
    out, err = await process.communicate()
    return process.returncode or 0, out, err


async def test_the_commands_print_what_the_api_says(stream: Stream) -> None:
    minute = past_minute()
    await stream.events(0, minute, 20, lose={"normalized": [4]})
    await stream.commit(0)
    async with stream.observing() as (_, url):
        await until(url, f"/api/v1/pipes/flights/minutes/{minute}", lambda body: body.get("in") == 20)
        status, out, _ = await command("lost", "flights", str(minute), "--json", "--url", url)
        assert (status, [event["ce_id"] for event in orjson.loads(out)]) == (3, ["id-0-4"])
        status, out, _ = await command("minutes", "flights", "--json", "--url", url)
        assert (status, {row["minute"]: row["lost"] for row in orjson.loads(out)}[minute]) == (0, 1)
        assert b"flights" in (await command("top", "--once", "--url", url))[1]
        status, _, err = await command("lost", "flights", "1", "--url", url)
        assert (status, b"not closed yet" in err) == (1, True)
    status, _, err = await command("top", "--once", "--url", "http://127.0.0.1:9")
    assert (status, b"whether it is running" in err) == (1, True)


async def test_a_parked_destination_is_an_alarm_until_it_is_active_again(stream: Stream) -> None:
    crm, removed = DestinationName("flights", "crm"), DestinationName("flights", "removed")
    parked_change = StateChange(DestinationState.PARKED, EGEST, "it failed for an hour", now_us())
    for name in (crm, removed):
        await stream.producer.send_and_wait(
            stream.topics.destinations, 0, [state_record(name, parked_change)]
        )

    def subjects(body: Any) -> list[str]:
        return [alarm["subject"] for alarm in body["active"] if alarm["kind"] == "parked"]

    async with stream.observing() as (_, url):
        body = await until(url, "/api/v1/alarms", subjects)
        assert subjects(body) == ["crm"], "one that no pipe declares any more is not"
        [alarm] = [entry for entry in body["active"] if entry["kind"] == "parked"]
        assert "it failed for an hour" in alarm["cause"]
        active_change = StateChange(DestinationState.ACTIVE, EGEST, "a delivery succeeded", now_us())
        await stream.producer.send_and_wait(stream.topics.destinations, 0, [state_record(crm, active_change)])
        await until(url, "/api/v1/alarms", lambda body: not subjects(body))


async def test_a_control_record_that_cannot_be_read_is_an_alarm_until_its_key_is_written_again(
    stream: Stream,
) -> None:
    crm = DestinationName("flights", "crm")
    await stream.producer.send_and_wait(stream.topics.destinations, 0, [Record(b"flights/crm", b"{}", [])])

    def causes(body: Any) -> list[str]:
        return [alarm["cause"] for alarm in body["active"] if alarm["kind"] == "unreadable-record"]

    async with stream.observing() as (observer, url):
        async with asyncio.timeout(60):
            while not observer.stream.partitions.numbers:
                await asyncio.sleep(0.05)
        body = await until(url, "/api/v1/alarms", causes)
        [cause] = causes(body)
        assert "'flights/crm'" in cause
        assert stream.topics.destinations in cause
        active_change = StateChange(DestinationState.ACTIVE, EGEST, "a delivery succeeded", now_us())
        await stream.producer.send_and_wait(stream.topics.destinations, 0, [state_record(crm, active_change)])
        await until(url, "/api/v1/alarms", lambda body: not causes(body))


async def test_a_declaration_that_cannot_be_read_is_an_alarm_that_says_that_its_pipe_is_held(
    stream: Stream,
) -> None:
    pipes = stream.topics.pipes
    await stream.producer.send_and_wait(pipes, 0, [Record(b"flights", b"{", [])])

    def causes(body: Any) -> list[str]:
        return [alarm["cause"] for alarm in body["active"] if alarm["kind"] == "unreadable-record"]

    async with stream.observing() as (_, url):
        [cause] = causes(await until(url, "/api/v1/alarms", causes))
    assert f"of {pipes} cannot be read (ValidationError): the pipe is held" in cause
    assert "'flights'" in cause


async def test_minutes_are_listed_from_the_one_in_which_the_stream_started(kafka: str) -> None:
    first_minute = now_us() // 60_000_000
    async with new_stream(kafka) as stream, stream.observing() as (observer, url):
        creation_minute = now_us() // 60_000_000
        path = "/api/v1/pipes/flights/minutes?last=60"
        async with asyncio.timeout(90):
            while observer.stream.store.closed_minute(observer.stream.partitions.count) < first_minute - 1:
                await asyncio.sleep(0.05)
        await asyncio.sleep(0.5)  # long enough to merge what was closed
        body = await ask(url, path)
        minutes = [row["minute"] for row in (*body["minutes"], *body["provisional"])]
        assert first_minute <= minutes[0] <= creation_minute, (
            "no minute before the stream, and the one in which it started"
        )
        assert minutes == list(range(minutes[0], minutes[-1] + 1))
        assert minutes[-1] >= now_us() // 60_000_000 - 1
