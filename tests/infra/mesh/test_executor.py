"""The executor over real HTTP: secrets, fencing, one change at a time, clear refusals."""

import asyncio
from contextlib import asynccontextmanager

import aiohttp
import pytest

from hifi.errors import Misconfigured, Retryable
from hifi.http import server
from hifi_infra.mesh.executor import INSTANCE, INSTANCES, RELEASE, Executor


class CountedMesh:
    """Stands in for a mesh: remembers what it is asked to do."""

    def __init__(self) -> None:
        self.instances = {}
        self.changes: list[tuple[str, int, str]] = []
        self.at_once = self.most_at_once = 0

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

    def set_default_release(self, service: str, release: str) -> None:
        self.changes.append((service, "new instances", release))


@asynccontextmanager
async def served():
    mesh = CountedMesh()
    executor = Executor(mesh)
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

        put.url, put.session, put.change = url, session, change
        yield mesh, put


async def test_a_change_is_made_and_named() -> None:
    async with served() as (mesh, put):
        assert await put(count=3, token=7, reason="lanes 95% full") == (200, {"service": "egest", "count": 3})
        assert mesh.changes == [("egest", 3, "lanes 95% full")]


async def test_a_step_that_is_over_changes_nothing() -> None:
    async with served() as (mesh, put):
        await put(count=3, token=9, reason="")
        status, problem = await put(count=1, token=8, reason="frozen since")
        assert (status, problem["title"]) == (409, "Fenced")
        assert "step 9 has begun since" in problem["detail"]
        assert len(mesh.changes) == 1
        assert (await put(count=4, token=9, reason="the same step again"))[0] == 200


async def test_releases_of_instances_are_changed_with_the_same_tokens() -> None:
    async with served() as (mesh, put):
        name, service = INSTANCE.format(name="egest-2"), RELEASE.format(service="egest")
        assert (await put.change("PUT", name, release="/r/7", reason="canary", token=5))[0] == 200
        assert (await put.change("PUT", service, release="/r/7", token=6))[0] == 200
        assert (await put.change("DELETE", name, reason="worse", token=7))[0] == 200
        for path, body in ((name, {"release": "/r/8", "reason": ""}), (service, {"release": "/r/8"})):
            assert (await put.change("PUT", path, token=4, **body))[0] == 409
        assert (await put.change("DELETE", name, reason="", token=4))[0] == 409
        status, problem = await put.change("PUT", name, release="gone", reason="", token=8)
        assert (status, problem["detail"]) == (400, "the release gone is no folder")
        assert (await put.change("PUT", name, release="/r/8"))[0] == 400
        assert mesh.changes == [
            ("egest-2", "/r/7", "canary"),
            ("egest", "new instances", "/r/7"),
            ("egest-2", "removed", "worse"),
        ]


async def test_changes_are_made_one_after_the_other() -> None:
    async with served() as (mesh, put):
        await asyncio.gather(*(put(count=2, token=5, reason="") for _ in range(5)))
        assert mesh.most_at_once == 1


async def test_without_the_secret_nothing_is_told_or_changed() -> None:
    async with served() as (mesh, put):
        assert (await put(count=3, token=7, reason="", secret="guess"))[0] == 401
        async with put.session.get(put.url + INSTANCES) as answer:
            assert answer.status == 401
        assert mesh.changes == []


@pytest.mark.parametrize(
    ("body", "service", "status"),
    [
        ({"count": "many", "token": 1, "reason": ""}, "egest", 400),
        ({"count": 1}, "egest", 400),
        ({"count": 65, "token": 1, "reason": ""}, "egest", 400),
        ({"count": 1, "token": 1, "reason": ""}, "enrich", 503),
    ],
)
async def test_refusals_say_why(body, service, status) -> None:
    async with served() as (_, put):
        answered, problem = await put(service, **body)
        assert answered == status
        assert problem["detail"]
