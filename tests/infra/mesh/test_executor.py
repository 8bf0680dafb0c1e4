"""The executor over real HTTP: secrets, fencing, one change at a time, clear refusals."""

import asyncio
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from starlette.routing import Route
from tests.support.generated_requests import SHORT, Requests

from hifi.runtime.errors import Misconfigured, Retryable
from hifi.runtime.http import server
from hifi.runtime.http.openapi import document
from hifi_infra.mesh.executed_instance import ExecutedInstance
from hifi_infra.mesh.executor import Executor
from hifi_infra.mesh.executor_client import MeshExecutor
from hifi_infra.mesh.executor_operations import API, INSTANCE, INSTANCES, OPERATIONS, RELEASE

INSTANCE_1 = ExecutedInstance("egest", "egest-1", 9000, 1.5, "1.3", True, 2.5, 1, 1000, "0a1b-", "172.30.0.5")


class CountedMesh:
    """Stands in for a mesh: remembers what it is asked to do."""

    def __init__(self) -> None:
        self.changes: list[tuple[str, int | str, str]] = []
        self.at_once = self.most_at_once = 0

    def executed(self) -> list[ExecutedInstance]:
        return [INSTANCE_1]

    async def scale(self, service: str, count: int, reason: str = "") -> None:
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        await asyncio.sleep(0.01)
        self.at_once -= 1
        if count > 64:
            raise Misconfigured("at most 64 instances")
        if service == "enrich":
            raise Retryable("it does not end")
        self.changes.append((service, count, reason))

    async def set_release(self, name: str, release: str, reason: str) -> None:
        if release == "gone":
            raise Misconfigured("the release gone is no folder")
        self.changes.append((name, release, reason))

    async def remove(self, name: str, reason: str) -> None:
        self.changes.append((name, "removed", reason))

    async def set_default_release(self, service: str, release: str) -> None:
        self.changes.append((service, "new instances", release))


@asynccontextmanager
async def served(**options):
    mesh = CountedMesh()
    executor = Executor(mesh, **options)
    sock = server.listen("127.0.0.1", 0)
    async with server.serve(executor.app(), sock, drain_s=1), aiohttp.ClientSession() as session:
        url = f"http://127.0.0.1:{sock.getsockname()[1]}"

        async def put(service="egest", *, secret=executor.secret, **body):
            headers = {"authorization": f"Bearer {secret}"}
            async with session.put(
                f"{url}/v1/services/{service}/instances", json=body, headers=headers
            ) as answer:
                return answer.status, await answer.json(content_type=None)

        async def change(method, path, **body):
            headers = {"authorization": f"Bearer {executor.secret}"}
            async with session.request(method, url + path, json=body, headers=headers) as answer:
                return answer.status, await answer.json(content_type=None)

        client: Any = put
        client.url, client.session, client.change = url, session, change
        yield mesh, client


async def test_a_change_is_made_and_named() -> None:
    async with served() as (mesh, client):
        assert await client(count=3, token=7, reason="lanes 95% full") == (
            200,
            {"service": "egest", "count": 3},
        )
        assert mesh.changes == [("egest", 3, "lanes 95% full")]


async def test_an_action_that_is_over_changes_nothing() -> None:
    async with served() as (mesh, client):
        await client(count=3, token=9, reason="")
        status, problem = await client(count=1, token=8, reason="frozen since")
        assert (status, problem["title"]) == (409, "Fenced")
        assert "action 9 has begun since" in problem["detail"]
        assert len(mesh.changes) == 1
        assert (await client(count=4, token=9, reason="the same action again"))[0] == 200


async def test_an_executor_that_starts_again_knows_the_highest_token() -> None:
    stored_tokens: list[int] = []
    async with served(highest_token=8, keep_token=stored_tokens.append) as (mesh, client):
        assert (await client(count=1, token=7, reason="of before the restart"))[0] == 409
        for token in (9, 9, 10):
            assert (await client(count=2, token=token, reason=""))[0] == 200
        assert stored_tokens == [9, 10]
        assert len(mesh.changes) == 3


async def test_clients_see_instances_as_the_mesh_has_them() -> None:
    async with served(secret="given") as (_, client):
        assert await MeshExecutor(client.session, client.url, "given").instances() == {"egest": [INSTANCE_1]}


@pytest.mark.parametrize(("client_id", "expected"), [("0a1b-7", True), ("0a1b", False), ("egest-1", False)])
def test_a_member_is_known_by_how_its_name_begins(client_id: str, expected: bool) -> None:
    assert INSTANCE_1.is_member(client_id) == expected


async def test_releases_of_instances_are_changed_with_the_same_tokens() -> None:
    async with served() as (mesh, client):
        name, service = INSTANCE.format(name="egest-2"), RELEASE.format(service="egest")
        assert (await client.change("PUT", name, release="/r/7", reason="canary", token=5))[0] == 200
        assert (await client.change("PUT", service, release="/r/7", token=6))[0] == 200
        assert (await client.change("DELETE", name, reason="worse", token=7))[0] == 200
        for path, body in ((name, {"release": "/r/8", "reason": ""}), (service, {"release": "/r/8"})):
            assert (await client.change("PUT", path, token=4, **body))[0] == 409
        assert (await client.change("DELETE", name, reason="", token=4))[0] == 409
        status, problem = await client.change("PUT", name, release="gone", reason="", token=8)
        assert (status, problem["detail"]) == (400, "the release gone is no folder")
        assert (await client.change("PUT", name, release="/r/8"))[0] == 400
        assert mesh.changes == [
            ("egest-2", "/r/7", "canary"),
            ("egest", "new instances", "/r/7"),
            ("egest-2", "removed", "worse"),
        ]


async def test_changes_are_made_one_after_the_other() -> None:
    async with served() as (mesh, client):
        await asyncio.gather(*(client(count=2, token=5, reason="") for _ in range(5)))
        assert mesh.most_at_once == 1


async def test_without_the_secret_nothing_is_told_or_changed() -> None:
    async with served() as (mesh, client):
        documented_routes = {(operation.method, operation.path) for operation in OPERATIONS}
        routes = [route for route in Executor(mesh).app().routes if isinstance(route, Route)]
        served_routes = {(method, route.path) for route in routes for method in route.methods or ()}
        assert served_routes == documented_routes | {
            ("GET", "/openapi.json"),
            ("HEAD", "/openapi.json"),
            ("HEAD", INSTANCES),
        }
        body = {"count": 3, "token": 7, "reason": "", "release": "/r/7"}
        for method, path in documented_routes:
            url = client.url + path.format(name="egest-1", service="egest")
            for headers in ({}, {"authorization": "Bearer guess"}, {"authorization": "Basic \u00ff"}):
                async with client.session.request(method, url, json=body, headers=headers) as answer:
                    assert answer.status == 401, (method, path, headers)
        assert mesh.changes == []


async def test_names_that_are_not_its_own_and_pages_of_other_sites_are_refused() -> None:
    async with served(secret="given", hosts=["executor.mesh.example"]) as (mesh, client):
        key = {"authorization": "Bearer given"}
        body = {"count": 1, "token": 1, "reason": ""}
        for host, status in (
            ("rebound.attacker.example", 421),
            ("executor.mesh.example:9400", 200),
            ("executor:9400", 200),
        ):
            async with client.session.get(client.url + INSTANCES, headers=key | {"host": host}) as answer:
                assert answer.status == status, host
        assert (await client(**body))[0] == 200
        url = client.url + "/v1/services/egest/instances"
        async with client.session.put(
            url, json=body, headers=key | {"origin": "https://attacker.example"}
        ) as answer:
            assert answer.status == 403
        assert len(mesh.changes) == 1


async def test_each_answer_to_a_generated_request_is_described() -> None:
    async with served(secret="given") as (_, client):
        api_document = document(OPERATIONS, "1", API)
        async with client.session.get(client.url + "/openapi.json") as answer:
            assert (await answer.json())["paths"] == api_document["paths"]
        headers, paths = {"authorization": "Bearer given"}, {"name": "egest-1", "service": "egest"}
        generated_requests = Requests(client.url, api_document, headers, paths)
        assert "\n".join(await generated_requests.problems(SHORT)) == ""
    answered_operations = {operation for operation, status in generated_requests.statuses if status == 200}
    assert answered_operations >= {
        f"{operation.method} {operation.path}" for operation in OPERATIONS if operation.body is None
    }


@pytest.mark.parametrize(
    ("body", "service", "status"),
    [
        ({"count": "many", "token": 1, "reason": ""}, "egest", 400),
        ({"count": 1}, "egest", 400),
        ({"count": True, "token": 1, "reason": ""}, "egest", 400),
        ({"count": -1, "token": 1, "reason": ""}, "egest", 400),
        ({"count": 1, "token": "1", "reason": ""}, "egest", 400),
        ([], "egest", 400),
        ({"count": 65, "token": 1, "reason": ""}, "egest", 400),
        ({"count": 1, "token": 1, "reason": ""}, "enrich", 503),
    ],
)
async def test_refusals_say_why(body, service, status) -> None:
    async with served(secret="given") as (_, client):
        url, headers = f"{client.url}/v1/services/{service}/instances", {"authorization": "Bearer given"}
        async with client.session.put(url, json=body, headers=headers) as answer:
            answer_status, problem = answer.status, await answer.json(content_type=None)
        assert answer_status == status
        assert problem["detail"]


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (200, b"[]"),
        (200, b"{}"),
        (200, b'{"instances":[{"service":"egest"}]}'),
        (200, b'{"instances":[{"service":5}]}'),
        (200, b"null"),
        (400, b"[]"),
        (503, b'"gateway"'),
    ],
)
async def test_an_answer_of_another_program_is_waited_out(status: int, body: bytes) -> None:
    async def answer(_: web.Request) -> web.Response:
        return web.Response(status=status, body=body)

    app = web.Application()
    app.router.add_get(INSTANCES, answer)
    async with TestServer(app) as other_program, aiohttp.ClientSession() as session:
        with pytest.raises(Retryable):
            await MeshExecutor(session, str(other_program.make_url("")), "secret").instances()
