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
    for at in range(2):
        await managed.until(at, "GET", "/pipes", 200, by="ben")
    condition, authors = {"if-none-match": "*"}, ["ann", "ben"]
    for attempt in range(8):
        answers = await asyncio.gather(
            *(
                managed.call(
                    at % 2, "PUT", "/pipes/flights", body(f"d{attempt}-{at}"), condition, authors[at % 2]
                )
                for at in range(6)
            )
        )
        won = [at for at, answer in enumerate(answers) if answer.status in (200, 201)]
        assert len(won) == 1, [answer.content for answer in answers]
        winner = answers[won[0]].content["declared"]
        for at, answer in enumerate(answers):
            if at != won[0]:
                assert answer.status == 412, answer.content
                assert answer.content["number"] == winner["number"]
                assert answer.content["author"] == authors[won[0] % 2]
                assert answer.content["at_us"] == winner["at_us"]
        condition = answers[won[0]].etag
        for at in range(2):  # both instances agree
            end = time.monotonic() + WITHIN_S
            while (seen := await managed.call(at, "GET", "/pipes/flights")).etag != condition:
                assert time.monotonic() < end
                await asyncio.sleep(0.05)
            assert seen.content["declared"]["body"]["destinations"][0]["name"] == f"d{attempt}-{won[0]}"
    versions = await managed.call(1, "GET", "/pipes/flights/versions")
    assert len(versions.content["versions"]) == 8
    audit = Audit()
    await managed.read(managed.control.audit, audit.take)
    outcomes = [entry.outcome for entry in audit.entries.values()]
    assert outcomes.count(AuditOutcome.DONE) == 8
    assert set(outcomes) <= {AuditOutcome.DONE, AuditOutcome.REFUSED}


async def test_a_pipe_is_declared_changed_rolled_back_and_deleted(managed: Managed) -> None:
    text = b"pipe: flights\nsource:\n  keys: [{env: K}]\ndestinations:\n  - name: crm\n    uri: http://127.0.0.1:9/\n"
    checked = await managed.call(0, "POST", "/check", text)
    assert {
        (problem["line"], problem["column"], problem["where"]) for problem in checked.content["problems"]
    } >= {(6, 5, "destinations[0].uri")}
    refused = await managed.call(0, "PUT", "/pipes/flights", text, {"if-none-match": "*"})
    assert (refused.status, refused.content["problems"]) == (422, checked.content["problems"])
    for bad, where in (
        (b"pipe: flights\nsource: &a {keys: [{env: K}]}\nx: *a\n", ""),
        (orjson.dumps(body("crm") | {"normalize": {"schema": "/etc/hostname"}}), "normalize.schema"),
        (orjson.dumps(body("crm") | {"source": {"keys": [{"file": "secret"}]}}), ""),
        (b"pipe: [", ""),
    ):
        problems = (await managed.call(0, "POST", "/check", bad)).content["problems"]
        assert [problem["where"] for problem in problems] == [where], problems

    sent = {"pipe": orjson.dumps(body("one") | {"normalize": {"schema": {"required": ["a"]}}}).decode()}
    tried = await managed.call(0, "POST", "/try", sent | {"event": {"a": 1}})
    assert [delivery["destination"] for delivery in tried.content["deliveries"]] == ["one"]
    tried = await managed.call(0, "POST", "/try", sent | {"event": {"b": 1}})
    assert (tried.content["refused"]["reason"], tried.content["deliveries"]) == ("schema", [])
    trials: tuple[tuple[int, Any], ...] = (
        (400, {"pipe": 1, "event": {}}),
        (400, []),
        (422, {"pipe": "x: 1", "event": {}}),
    )
    for status, trial in trials:
        assert (await managed.call(0, "POST", "/try", trial)).status == status
    assert (await managed.call(0, "GET", "/pipes")).content["pipes"] == []

    missing = await managed.call(0, "PUT", "/pipes/flights", body("one"))
    assert missing.status == 428
    first = await managed.call(0, "PUT", "/pipes/flights", body("one"), {"if-none-match": "*"})
    assert first.status == 201
    assert first.content["declared"]["author"] == "ann"
    assert first.content["rollout"]["state"] == "waiting"
    twin = body("one", "trains") | {"source": body("one")["source"]}
    assert (await managed.call(0, "PUT", "/pipes/trains", twin, {"if-none-match": "*"})).status == 422
    assert first.content["owner"] is None
    owned = body("two") | {"owner": {"email": "ann@example.com"}}
    second = await managed.call(0, "PUT", "/pipes/flights", owned, first.etag)
    assert second.status == 200
    owner = {"webhook": None, "email": "ann@example.com"}
    assert [pipe["owner"] for pipe in (await managed.call(0, "GET", "/pipes")).content["pipes"]] == [owner]
    nobody = body("two") | {"owner": {}}
    problems = (await managed.call(0, "POST", "/check", nobody)).content["problems"]
    assert [(problem["where"], problem["message"]) for problem in problems] == [
        ("owner", "set `webhook`, `email` or both")
    ]
    number = first.content["declared"]["number"]
    old = await managed.call(0, "GET", f"/pipes/flights/versions/{number}")
    assert old.content["body"]["destinations"][0]["name"] == "one"
    back = await managed.call(0, "POST", f"/pipes/flights/versions/{number}/declare", headers=second.etag)
    assert back.content["declared"]["body"] == first.content["declared"]["body"]

    assert (await managed.call(0, "POST", "/pipes/flights/rollout/pause")).status == 200
    requests: list[Any] = []
    await managed.read(managed.control.requests, lambda _, value, __: requests.append(decode(value)))
    assert [(request.kind, request.number, request.author) for request in requests] == [
        (RequestKind.PAUSE, back.content["declared"]["number"], "ann")
    ]

    gone = await managed.call(0, "DELETE", "/pipes/flights", headers=back.etag)
    assert gone.content["declared"]["deleted"]
    assert (await managed.call(0, "GET", "/pipes")).content["pipes"] == []
    again = await managed.call(0, "PUT", "/pipes/flights", body("three"), {"if-none-match": "*"})
    assert again.status == 201
    assert (await managed.call(0, "GET", "/openapi.json", by="")).status == 401
    document = await managed.call(0, "GET", "/openapi.json")
    assert "/api/v1/pipes/{pipe}" in document.content["paths"]

    audit = Audit()
    await managed.read(managed.control.audit, audit.take)
    assert [(entry.what, entry.before, entry.outcome) for entry in audit.entries.values()] == [
        ("declare", None, "done"),
        ("declare", number, "done"),
        (f"roll back to {number}", second.content["declared"]["number"], "done"),
        ("pause the rollout", back.content["declared"]["number"], "done"),
        ("delete", back.content["declared"]["number"], "done"),
        ("declare", gone.content["declared"]["number"], "done"),
    ]


async def test_a_pipe_in_force_without_a_declaration_is_changed_by_its_etag(managed: Managed) -> None:
    pipe = Pipe.model_validate(body("one"))
    published = await read_registry(managed.kafka, managed.topics)
    await publish(managed.kafka, managed.topics, put_at_once(published, pipe))
    answer = await managed.until(0, "GET", "/pipes/flights", 200)
    assert answer.content["declared"] is None
    assert answer.content["in_force"]["revision"] == 1
    assert (await managed.call(0, "PUT", "/pipes/flights", body("x"), {"if-none-match": "*"})).status == 412
    assert (await managed.call(0, "PUT", "/pipes/flights", body("two"), answer.etag)).status == 201


async def test_what_is_declared_by_file_is_changed_only_when_it_is_taken_over(managed: Managed) -> None:
    first = await managed.call(0, "PUT", "/pipes/flights?origin=file", body("one"), {"if-none-match": "*"})
    assert first.content["declared"]["origin"] == "file"
    refused = await managed.call(0, "PUT", "/pipes/flights", body("two"), first.etag)
    assert refused.status == 409
    assert "hifi apply" in refused.content["detail"]
    assert (await managed.call(0, "DELETE", "/pipes/flights", headers=first.etag)).status == 409
    taken = await managed.call(0, "PUT", "/pipes/flights?take_over=true", body("two"), first.etag)
    assert (taken.status, taken.content["declared"]["origin"]) == (200, "api")
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
    for at in range(2):
        await managed.until(at, "GET", "/pipes/flights", 200, by="opa")
        for by in ("", "nobody", "old"):
            assert (await managed.call(at, "GET", "/pipes", by=by)).status == 401
        seen = await managed.call(at, "GET", "/pipes", by="vic")
        assert [pipe["pipe"] for pipe in seen.content["pipes"]] == ["flights"]
        assert (await managed.call(at, "GET", "/pipes/trains", by="vic")).status == 403
        assert (await managed.call(at, "POST", "/pipes/flights/rollout/pause", by="vic")).status == 403
        assert (await managed.call(at, "POST", "/pipes/flights/rollout/pause", by="opa")).status == 200
        assert (await managed.call(at, "DELETE", "/pipes/flights", by="opa")).status == 403
    await managed.write(managed.control.principals, revocation("opa"))
    for at in range(2):
        await managed.until(at, "GET", "/pipes", 401, by="opa")
    logs = "".join((managed.folder / f"manage-{at}.log").read_text() for at in range(2))
    assert not any(token in logs for token in managed.tokens.values())


async def test_what_changed_and_who_may_do_what_are_shown_within_the_scope_of_a_principal(
    managed: Managed,
) -> None:
    await managed.create("vic", Role.VIEWER, ("flights",))
    await managed.create("max", Role.ADMIN, ("flights",))
    first = await managed.call(0, "PUT", "/pipes/flights", body("one"), {"if-none-match": "*"})
    second = await managed.call(0, "PUT", "/pipes/flights", body("two"), first.etag)
    assert (
        await managed.call(0, "PUT", "/pipes/trains", body("x", "trains"), {"if-none-match": "*"})
    ).status == 201
    number = second.content["declared"]["number"]
    version = (await managed.call(0, "GET", f"/pipes/flights/versions/{number}")).content
    assert "-- name: one\n+- name: two\n" in version["changes"]
    assert version["yaml"] == second.content["declared"]["yaml"]
    end = time.monotonic() + WITHIN_S
    while len((await managed.call(0, "GET", "/audit")).content["entries"]) < 3:
        assert time.monotonic() < end
        await asyncio.sleep(0.05)
    for by in ("vic", "max"):
        await managed.until(0, "GET", "/me", 200, by=by)
        entries = (await managed.call(0, "GET", "/audit", by=by)).content["entries"]
        assert [(entry["subject"], entry["outcome"]) for entry in entries] == [("pipe/flights", "done")] * 2
        assert (await managed.call(0, "GET", "/principals", by=by)).status == 403
    listed = (await managed.call(0, "GET", "/principals")).content["principals"]
    assert [(principal["name"], principal["role"]) for principal in listed] == [
        ("ann", "admin"),
        ("max", "admin"),
        ("vic", "viewer"),
    ]
    assert "token_sha256" not in listed[0]


async def test_an_operator_pauses_and_resumes_a_pipe_and_changes_leave_it_paused(managed: Managed) -> None:
    await managed.create("olga", Role.OPERATOR)
    await managed.create("vera", Role.VIEWER)
    for name in ("olga", "vera"):
        await managed.until(0, "GET", "/me", 200, by=name)
    first = await managed.call(0, "PUT", "/pipes/flights?origin=file", body("one"), {"if-none-match": "*"})
    assert first.content["declared"]["state"] == "active"
    assert (
        await managed.call(0, "POST", "/pipes/flights/pause", by="vera", headers=first.etag)
    ).status == 403
    assert (await managed.call(0, "POST", "/pipes/flights/pause", by="olga")).status == 428
    paused = await managed.call(0, "POST", "/pipes/flights/pause", by="olga", headers=first.etag)
    declared = paused.content["declared"]
    assert (paused.status, declared["state"], declared["author"]) == (200, "paused", "olga")
    assert (declared["body"], declared["origin"]) == (first.content["declared"]["body"], "file")
    assert paused.content["rollout"]["declaration"] == first.content["declared"]["number"]
    late = await managed.call(0, "POST", "/pipes/flights/resume", by="olga", headers=first.etag)
    assert (late.status, late.content["author"]) == (412, "olga")
    twice = await managed.call(0, "POST", "/pipes/flights/pause", by="olga", headers=paused.etag)
    assert (twice.status, twice.etag) == (200, paused.etag), "it is paused already"
    changed = await managed.call(0, "PUT", "/pipes/flights?origin=file", body("two"), paused.etag)
    assert changed.content["declared"]["state"] == "paused"
    resumed = await managed.call(0, "POST", "/pipes/flights/resume", by="olga", headers=changed.etag)
    assert resumed.content["declared"]["state"] == "active"
    assert (await managed.call(0, "POST", "/pipes/trains/pause", headers=resumed.etag)).status == 404

    new = pipe_record(Pipe.model_validate(body("x", "trains")), cap=RateCap(share=100, events_per_s=10))
    await publish(managed.kafka, managed.topics, [new])
    answer = await managed.until(0, "GET", "/pipes/trains", 200)
    assert answer.content["in_force"] | {"body": 0, "yaml": 0} == {
        "revision": 1,
        "paused": False,
        "cap_per_s": 10.0,
        "body": 0,
        "yaml": 0,
    }
    undeclared = await managed.call(0, "POST", "/pipes/trains/pause", by="olga", headers=answer.etag)
    assert undeclared.content["declared"]["state"] == "paused"
    audit = Audit()
    await managed.read(managed.control.audit, audit.take)
    done = [(entry.principal, entry.what) for entry in audit.entries.values() if entry.what != "declare"]
    assert done == [("olga", "pause the pipe"), ("olga", "resume the pipe"), ("olga", "pause the pipe")]
