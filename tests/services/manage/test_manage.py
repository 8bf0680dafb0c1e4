"""The real service on a real Kafka: two instances of the management API, whose callers race, and who may do what."""

import asyncio
import time
from typing import Any

import orjson
import pytest
from tests.support.manage.managed_stream import WITHIN_S, Managed, body

from hifi.control.principals.audit import Audit, AuditOutcome
from hifi.control.principals.principal import Role, new_token, revocation
from hifi.control.request import RequestKind, decode
from hifi.pipe.model import Pipe
from hifi.pipe.registry import publish, read_registry
from hifi.pipe.revision import RateCap, pipe_record
from hifi.pipe.rollout import put_at_once
from hifi.runtime.clock import now_us


@pytest.mark.more
async def test_of_callers_that_race_on_two_instances_one_wins_and_the_others_learn_who(
    managed: Managed,
) -> None:
    await managed.create("ben", Role.ADMIN)
    for index in range(2):
        await managed.until(index, "GET", "/pipes", 200, by="ben")
    condition, authors = {"if-none-match": "*"}, ["ann", "ben"]
    for attempt in range(8):
        answers = await asyncio.gather(
            *(
                managed.call(
                    index % 2,
                    "PUT",
                    "/pipes/flights",
                    body(f"d{attempt}-{index}"),
                    condition,
                    authors[index % 2],
                )
                for index in range(6)
            )
        )
        winners = [index for index, answer in enumerate(answers) if answer.status in (200, 201)]
        assert len(winners) == 1, [answer.content for answer in answers]
        winning_declaration = answers[winners[0]].content["declared"]
        for index, answer in enumerate(answers):
            if index != winners[0]:
                assert answer.status == 412, answer.content
                assert answer.content["number"] == winning_declaration["number"]
                assert answer.content["author"] == authors[winners[0] % 2]
                assert answer.content["at_us"] == winning_declaration["at_us"]
        condition = answers[winners[0]].etag
        for index in range(2):  # both instances agree
            end_s = time.monotonic() + WITHIN_S
            while (view := await managed.call(index, "GET", "/pipes/flights")).etag != condition:
                assert time.monotonic() < end_s
                await asyncio.sleep(0.05)
            assert view.content["declared"]["body"]["destinations"][0]["name"] == f"d{attempt}-{winners[0]}"
    versions = await managed.call(1, "GET", "/pipes/flights/versions")
    assert len(versions.content["versions"]) == 8
    audit = Audit()
    await managed.read(managed.control.audit, audit.take)
    outcomes = [entry.outcome for entry in audit.entries.values()]
    assert outcomes.count(AuditOutcome.DONE) == 8
    assert set(outcomes) <= {AuditOutcome.DONE, AuditOutcome.REFUSED}


async def test_a_pipe_is_declared_changed_rolled_back_and_deleted(managed: Managed) -> None:
    text = b"pipe: flights\nsource:\n  keys: [{env: K}]\ndestinations:\n  - name: crm\n    uri: http://127.0.0.1:9/\n"
    check = await managed.call(0, "POST", "/check", text)
    assert {
        (problem["line"], problem["column"], problem["where"]) for problem in check.content["problems"]
    } >= {(6, 5, "destinations[0].uri")}
    refusal = await managed.call(0, "PUT", "/pipes/flights", text, {"if-none-match": "*"})
    assert (refusal.status, refusal.content["problems"]) == (422, check.content["problems"])
    for invalid_body, location in (
        (b"pipe: flights\nsource: &a {keys: [{env: K}]}\nx: *a\n", ""),
        (orjson.dumps(body("crm") | {"normalize": {"schema": "/etc/hostname"}}), "normalize.schema"),
        (orjson.dumps(body("crm") | {"source": {"keys": [{"file": "secret"}]}}), ""),
        (b"pipe: [", ""),
    ):
        problems = (await managed.call(0, "POST", "/check", invalid_body)).content["problems"]
        assert [problem["where"] for problem in problems] == [location], problems

    trial_body = {"pipe": orjson.dumps(body("one") | {"normalize": {"schema": {"required": ["a"]}}}).decode()}
    trial_answer = await managed.call(0, "POST", "/try", trial_body | {"event": {"a": 1}})
    assert [delivery["destination"] for delivery in trial_answer.content["deliveries"]] == ["one"]
    trial_answer = await managed.call(0, "POST", "/try", trial_body | {"event": {"b": 1}})
    assert (trial_answer.content["refused"]["reason"], trial_answer.content["deliveries"]) == ("schema", [])
    trials: tuple[tuple[int, Any], ...] = (
        (400, {"pipe": 1, "event": {}}),
        (400, []),
        (422, {"pipe": "x: 1", "event": {}}),
    )
    for status, trial in trials:
        assert (await managed.call(0, "POST", "/try", trial)).status == status
    assert (await managed.call(0, "GET", "/pipes")).content["pipes"] == []

    answer = await managed.call(0, "PUT", "/pipes/flights", body("one"))
    assert answer.status == 428
    first_response = await managed.call(0, "PUT", "/pipes/flights", body("one"), {"if-none-match": "*"})
    assert first_response.status == 201
    assert first_response.content["declared"]["author"] == "ann"
    assert first_response.content["rollout"]["state"] == "waiting"
    twin = body("one", "trains") | {"source": body("one")["source"]}
    assert (await managed.call(0, "PUT", "/pipes/trains", twin, {"if-none-match": "*"})).status == 422
    assert first_response.content["owner"] is None
    owned_body = body("two") | {"owner": {"email": "ann@example.com"}}
    second_response = await managed.call(0, "PUT", "/pipes/flights", owned_body, first_response.etag)
    assert second_response.status == 200
    owner = {"webhook": None, "email": "ann@example.com"}
    assert [pipe["owner"] for pipe in (await managed.call(0, "GET", "/pipes")).content["pipes"]] == [owner]
    ownerless_body = body("two") | {"owner": {}}
    problems = (await managed.call(0, "POST", "/check", ownerless_body)).content["problems"]
    assert [(problem["where"], problem["message"]) for problem in problems] == [
        ("owner", "set `webhook`, `email` or both")
    ]
    number = first_response.content["declared"]["number"]
    old_version = await managed.call(0, "GET", f"/pipes/flights/versions/{number}")
    assert old_version.content["body"]["destinations"][0]["name"] == "one"
    rollback = await managed.call(
        0, "POST", f"/pipes/flights/versions/{number}/declare", headers=second_response.etag
    )
    assert rollback.content["declared"]["body"] == first_response.content["declared"]["body"]

    assert (await managed.call(0, "POST", "/pipes/flights/rollout/pause")).status == 200
    requests: list[Any] = []
    await managed.read(managed.control.requests, lambda _, value, __: requests.append(decode(value)))
    assert [(request.kind, request.number, request.author) for request in requests] == [
        (RequestKind.PAUSE, rollback.content["declared"]["number"], "ann")
    ]

    deletion = await managed.call(0, "DELETE", "/pipes/flights", headers=rollback.etag)
    assert deletion.content["declared"]["deleted"]
    assert (await managed.call(0, "GET", "/pipes")).content["pipes"] == []
    redeclaration = await managed.call(0, "PUT", "/pipes/flights", body("three"), {"if-none-match": "*"})
    assert redeclaration.status == 201
    assert (await managed.call(0, "GET", "/openapi.json", by="")).status == 401
    document = await managed.call(0, "GET", "/openapi.json")
    assert "/api/v1/pipes/{pipe}" in document.content["paths"]

    audit = Audit()
    await managed.read(managed.control.audit, audit.take)
    assert [(entry.what, entry.before, entry.outcome) for entry in audit.entries.values()] == [
        ("declare", None, "done"),
        ("declare", number, "done"),
        (f"roll back to {number}", second_response.content["declared"]["number"], "done"),
        ("pause the rollout", rollback.content["declared"]["number"], "done"),
        ("delete", rollback.content["declared"]["number"], "done"),
        ("declare", deletion.content["declared"]["number"], "done"),
    ]


async def test_a_pipe_in_force_without_a_declaration_is_changed_by_its_etag(managed: Managed) -> None:
    pipe = Pipe.model_validate(body("one"))
    registry = await read_registry(managed.kafka, managed.topics)
    await publish(managed.kafka, managed.topics, put_at_once(registry, pipe))
    answer = await managed.until(0, "GET", "/pipes/flights", 200)
    assert answer.content["declared"] is None
    assert answer.content["in_force"]["revision"] == 1
    assert (await managed.call(0, "PUT", "/pipes/flights", body("x"), {"if-none-match": "*"})).status == 412
    assert (await managed.call(0, "PUT", "/pipes/flights", body("two"), answer.etag)).status == 201


async def test_what_is_declared_by_file_is_changed_only_when_it_is_taken_over(managed: Managed) -> None:
    first_response = await managed.call(
        0, "PUT", "/pipes/flights?origin=file", body("one"), {"if-none-match": "*"}
    )
    assert first_response.content["declared"]["origin"] == "file"
    refusal = await managed.call(0, "PUT", "/pipes/flights", body("two"), first_response.etag)
    assert refusal.status == 409
    assert "hifi apply" in refusal.content["detail"]
    assert (await managed.call(0, "DELETE", "/pipes/flights", headers=first_response.etag)).status == 409
    takeover = await managed.call(0, "PUT", "/pipes/flights?take_over=true", body("two"), first_response.etag)
    assert (takeover.status, takeover.content["declared"]["origin"]) == (200, "api")
    audit = Audit()
    await managed.read(managed.control.audit, audit.take)
    assert [entry.take_over for entry in audit.entries.values()] == [False, True]


async def test_calls_need_a_token_with_the_role_which_is_revoked_on_all_instances(managed: Managed) -> None:
    await managed.create("vic", Role.VIEWER, ("flights",))
    await managed.create("opa", Role.OPERATOR)
    await managed.create("old", Role.ADMIN, expires_us=now_us() - 1)
    managed.tokens["nobody"] = new_token()
    for name in ("flights", "trains"):
        answer = await managed.call(0, "PUT", f"/pipes/{name}", body("x", name), {"if-none-match": "*"})
        assert answer.status == 201
    for index in range(2):
        await managed.until(index, "GET", "/pipes/flights", 200, by="opa")
        for caller in ("", "nobody", "old"):
            assert (await managed.call(index, "GET", "/pipes", by=caller)).status == 401
        listing = await managed.call(index, "GET", "/pipes", by="vic")
        assert [pipe["pipe"] for pipe in listing.content["pipes"]] == ["flights"]
        assert (await managed.call(index, "GET", "/pipes/trains", by="vic")).status == 403
        assert (await managed.call(index, "POST", "/pipes/flights/rollout/pause", by="vic")).status == 403
        assert (await managed.call(index, "POST", "/pipes/flights/rollout/pause", by="opa")).status == 200
        assert (await managed.call(index, "DELETE", "/pipes/flights", by="opa")).status == 403
    await managed.write(managed.control.principals, revocation("opa"))
    for index in range(2):
        await managed.until(index, "GET", "/pipes", 401, by="opa")
    logs = "".join((managed.folder / f"manage-{index}.log").read_text() for index in range(2))
    assert not any(token in logs for token in managed.tokens.values())


async def test_what_changed_and_who_may_do_what_are_shown_within_the_scope_of_a_principal(
    managed: Managed,
) -> None:
    await managed.create("vic", Role.VIEWER, ("flights",))
    await managed.create("max", Role.ADMIN, ("flights",))
    first_response = await managed.call(0, "PUT", "/pipes/flights", body("one"), {"if-none-match": "*"})
    second_response = await managed.call(0, "PUT", "/pipes/flights", body("two"), first_response.etag)
    assert (
        await managed.call(0, "PUT", "/pipes/trains", body("x", "trains"), {"if-none-match": "*"})
    ).status == 201
    number = second_response.content["declared"]["number"]
    version = (await managed.call(0, "GET", f"/pipes/flights/versions/{number}")).content
    assert "-- name: one\n+- name: two\n" in version["changes"]
    assert version["yaml"] == second_response.content["declared"]["yaml"]
    end_s = time.monotonic() + WITHIN_S
    while len((await managed.call(0, "GET", "/audit")).content["entries"]) < 3:
        assert time.monotonic() < end_s
        await asyncio.sleep(0.05)
    for caller in ("vic", "max"):
        await managed.until(0, "GET", "/me", 200, by=caller)
        entries = (await managed.call(0, "GET", "/audit", by=caller)).content["entries"]
        assert [(entry["subject"], entry["outcome"]) for entry in entries] == [("pipe/flights", "done")] * 2
        assert (await managed.call(0, "GET", "/principals", by=caller)).status == 403
    principals = (await managed.call(0, "GET", "/principals")).content["principals"]
    assert [(principal["name"], principal["role"]) for principal in principals] == [
        ("ann", "admin"),
        ("max", "admin"),
        ("vic", "viewer"),
    ]
    assert "token_sha256" not in principals[0]


async def test_an_operator_pauses_and_resumes_a_pipe_and_changes_leave_it_paused(managed: Managed) -> None:
    await managed.create("olga", Role.OPERATOR)
    await managed.create("vera", Role.VIEWER)
    for name in ("olga", "vera"):
        await managed.until(0, "GET", "/me", 200, by=name)
    first_response = await managed.call(
        0, "PUT", "/pipes/flights?origin=file", body("one"), {"if-none-match": "*"}
    )
    assert first_response.content["declared"]["state"] == "active"
    assert (
        await managed.call(0, "POST", "/pipes/flights/pause", by="vera", headers=first_response.etag)
    ).status == 403
    assert (await managed.call(0, "POST", "/pipes/flights/pause", by="olga")).status == 428
    pause = await managed.call(0, "POST", "/pipes/flights/pause", by="olga", headers=first_response.etag)
    declaration = pause.content["declared"]
    assert (pause.status, declaration["state"], declaration["author"]) == (200, "paused", "olga")
    assert (declaration["body"], declaration["origin"]) == (
        first_response.content["declared"]["body"],
        "file",
    )
    assert pause.content["rollout"]["declaration"] == first_response.content["declared"]["number"]
    stale_resume = await managed.call(
        0, "POST", "/pipes/flights/resume", by="olga", headers=first_response.etag
    )
    assert (stale_resume.status, stale_resume.content["author"]) == (412, "olga")
    repeated_pause = await managed.call(0, "POST", "/pipes/flights/pause", by="olga", headers=pause.etag)
    assert (repeated_pause.status, repeated_pause.etag) == (200, pause.etag), "it is paused already"
    change = await managed.call(0, "PUT", "/pipes/flights?origin=file", body("two"), pause.etag)
    assert change.content["declared"]["state"] == "paused"
    resume = await managed.call(0, "POST", "/pipes/flights/resume", by="olga", headers=change.etag)
    assert resume.content["declared"]["state"] == "active"
    assert (await managed.call(0, "POST", "/pipes/trains/pause", headers=resume.etag)).status == 404

    trains_record = pipe_record(
        Pipe.model_validate(body("x", "trains")), cap=RateCap(share=100, events_per_s=10)
    )
    await publish(managed.kafka, managed.topics, [trains_record])
    answer = await managed.until(0, "GET", "/pipes/trains", 200)
    assert answer.content["in_force"] | {"body": 0, "yaml": 0} == {
        "revision": 1,
        "paused": False,
        "cap_per_s": 10.0,
        "body": 0,
        "yaml": 0,
    }
    undeclared_pause = await managed.call(0, "POST", "/pipes/trains/pause", by="olga", headers=answer.etag)
    assert undeclared_pause.content["declared"]["state"] == "paused"
    for name in ("ships", "buses"):
        await publish(
            managed.kafka, managed.topics, [pipe_record(Pipe.model_validate(body("x", name)), paused=True)]
        )
        answer = await managed.until(0, "GET", f"/pipes/{name}", 200)
        assert answer.content["in_force"]["paused"]
        if name == "ships":
            change = await managed.call(0, "PUT", "/pipes/ships", body("y", name), answer.etag)
            assert change.content["declared"]["state"] == "paused", "a change leaves it paused"
        else:
            resume = await managed.call(0, "POST", "/pipes/buses/resume", by="olga", headers=answer.etag)
            assert resume.content["declared"]["state"] == "active"
    audit = Audit()
    await managed.read(managed.control.audit, audit.take)
    actions = [(entry.principal, entry.what) for entry in audit.entries.values() if entry.what != "declare"]
    assert actions == [
        ("olga", "pause the pipe"),
        ("olga", "resume the pipe"),
        ("olga", "pause the pipe"),
        ("olga", "resume the pipe"),
    ]
