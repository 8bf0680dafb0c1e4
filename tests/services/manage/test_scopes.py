"""What a principal may declare, learn and force by the management API, with a state of the test and no Kafka."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any, cast

import aiohttp
import orjson
import pytest
from aiokafka import ConsumerRecord
from tests.support.observe_principal import as_principal, principal

from hifi.control.declaration import Declaration, Declarations
from hifi.control.principals.audit import AuditEntry
from hifi.control.principals.principal import Principals, Role
from hifi.control.request import Request, RequestKind
from hifi.control.rollout_status import RolloutStatus, newest_statuses
from hifi.delivery.destination_state import DestinationStates
from hifi.kafka.last_uses import LastUses
from hifi.kafka.topics import Topics
from hifi.pipe.model import Pipe
from hifi.pipe.registry import PipeRegistry
from hifi.pipe.revision import pipe_record
from hifi.runtime.health import Health
from hifi.runtime.http import server
from hifi_manage.control_state import ControlState
from hifi_manage.web.api import application

STEP = {
    "kind": "step",
    "from": "payroll",
    "key": {"id": "int"},
    "window": {"tumbling": "1m"},
    "fields": {"n": "count(*)"},
}
JOIN = {
    "kind": "step",
    "from": "spy",
    "key": {"id": "int"},
    "join": {"with": "payroll", "within": "1m", "fields": {"salary": "salary"}},
}
NEW = {"if-none-match": "*"}


def body(name: str, source: Any = None, url: str = "http://127.0.0.1:9/") -> dict[str, Any]:
    return {
        "pipe": name,
        "source": source or {"keys": [{"env": f"KEY_{name.upper()}"}]},
        "enrich": {"fields": {"id": "int"}},
        "destinations": [{"name": "crm", "url": url}],
    }


class State:
    """What manage has read, in memory: `admin` of the whole stream, and `eve`, administrator of `spy` and `report`."""

    read = True
    fresh = True

    def __init__(self) -> None:
        self.principals, self.uses = Principals(), LastUses()
        for entry in (principal("admin", Role.ADMIN), principal("eve", Role.ADMIN, "report", "spy")):
            self.principals.take(entry.name.encode(), entry.record().value, 0)
        self.registry = PipeRegistry("nowhere:1", Topics("s"), Health("manage", "manage-1"))
        self.declared = Declarations(10)
        self.destinations = DestinationStates()
        self.requests: list[Request] = []

    def held(self, name: str) -> str | None:
        return self.registry.held(name)

    def statuses(self) -> Mapping[str, RolloutStatus]:
        return newest_statuses(self.declared.newest, {})

    async def declare(self, entry: AuditEntry, declaration: Declaration) -> Declaration:
        del entry
        record = declaration.record()
        number = 1 + max((newest.number for newest in self.declared.newest.values()), default=-1)
        self.declared.take(record.key, record.value, number)
        return replace(declaration, number=number)

    async def ask(self, entry: AuditEntry, request: Request) -> None:
        del entry
        self.requests.append(request)

    def put_in_force(self, pipe: Pipe) -> None:
        record = pipe_record(pipe)
        self.registry._apply(ConsumerRecord("pipes", 0, 0, 0, 1, record.key, record.value, None, 0, 0, ()))


class Api:
    """The API of a state.

    Args:
        url: of the API.
    """

    def __init__(self, url: str) -> None:
        self._url = url

    async def call(
        self, by: str, method: str, path: str, content: Any = None, headers: dict[str, str] | None = None
    ) -> tuple[int, Any, dict[str, str]]:
        """Status, JSON and the header `If-Match` for the next change."""
        async with (
            aiohttp.ClientSession(headers=as_principal(by) | (headers or {})) as session,
            session.request(method, self._url + path, data=content and orjson.dumps(content)) as answer,
        ):
            return answer.status, await answer.json(), {"if-match": answer.headers.get("etag", "")}


@asynccontextmanager
async def served(state: State) -> AsyncIterator[Api]:
    sock = server.listen("127.0.0.1", 0)
    async with server.serve(application(cast("ControlState", state), ""), sock, drain_s=1):
        yield Api(f"http://127.0.0.1:{sock.getsockname()[1]}/api/v1")


async def declare(api: Api, by: str, content: dict[str, Any], headers: dict[str, str]) -> tuple[int, Any]:
    status, answer, _ = await api.call(by, "PUT", f"/pipes/{content['pipe']}", content, headers)
    return status, answer


@pytest.mark.parametrize("source", [STEP, JOIN], ids=["from", "with"])
async def test_a_step_that_reads_a_pipe_outside_the_scope_is_not_declared_nor_tried(source: Any) -> None:
    async with served(State()) as api:
        for name in ("payroll", "spy"):
            assert (await declare(api, "admin", body(name), NEW))[0] == 201
        status, problem = await declare(api, "eve", body("report", source), NEW)
        assert status == 403
        assert (
            "eve may use the pipes report, spy only, and this step reads events of payroll."
            in problem["detail"]
        )
        trial = {"pipe": orjson.dumps(body("report", source)).decode(), "event": {}}
        assert (await api.call("eve", "POST", "/try", trial))[0] == 403
        assert (await declare(api, "admin", body("report", source), NEW))[0] == 201
        _, _, tag = await api.call("eve", "GET", "/pipes/report")
        change = body("report", source, "http://127.0.0.1:9/eve")
        assert (await declare(api, "eve", change, tag))[0] == 403


async def test_an_earlier_version_that_reads_a_pipe_outside_the_scope_is_not_declared_again() -> None:
    state = State()
    async with served(state) as api:
        assert (await declare(api, "admin", body("payroll"), NEW))[0] == 201
        status, answer = await declare(api, "admin", body("report", STEP), NEW)
        assert status == 201
        number = answer["declared"]["number"]
        _, _, tag = await api.call("eve", "GET", "/pipes/report")
        assert (await declare(api, "eve", body("report"), tag))[0] == 200
        _, _, tag = await api.call("eve", "GET", "/pipes/report")
        path = f"/pipes/report/versions/{number}/declare"
        assert (await api.call("eve", "POST", path, headers=tag))[0] == 403
        assert (await api.call("admin", "POST", path, headers=tag))[0] == 200


async def test_problems_name_only_pipes_in_the_scope() -> None:
    async with served(State()) as api:
        for name in ("payroll", "spy"):
            assert (await declare(api, "admin", body(name), NEW))[0] == 201
        key = {"keys": [{"env": "KEY_PAYROLL"}]}
        for content, message in (
            (body("report", STEP), "the pipe 'payroll' is not declared; declared are spy"),
            (
                body("report", STEP | {"from": "absent"}),
                "the pipe 'absent' is not declared; declared are spy",
            ),
            (body("report", key), "another pipe has the same write key; give each its own"),
        ):
            status, answer, _ = await api.call("eve", "POST", "/check", content)
            assert (status, [problem["message"] for problem in answer["problems"]]) == (200, [message])
        _, answer, _ = await api.call("admin", "POST", "/check", body("report", STEP))
        assert answer["problems"] == []
        _, answer, _ = await api.call("admin", "POST", "/check", body("report", key))
        assert "the pipe 'payroll' has the same write key" in answer["problems"][0]["message"]


@pytest.mark.parametrize("kind", list(RequestKind))
async def test_a_rollout_is_changed_only_as_the_caller_has_reviewed_it(kind: RequestKind) -> None:
    state = State()
    async with served(state) as api:
        assert (await declare(api, "admin", body("spy"), NEW))[0] == 201
        _, _, reviewed_tag = await api.call("eve", "GET", "/pipes/spy")
        change = body("spy", url="http://127.0.0.1:9/other")
        assert (await declare(api, "admin", change, reviewed_tag))[0] == 200
        path = f"/pipes/spy/rollout/{kind}"
        status, problem, newest_tag = await api.call("eve", "POST", path, headers=reviewed_tag)
        assert (status, problem["author"], state.requests) == (412, "admin", [])
        assert (await api.call("eve", "POST", path, headers=newest_tag))[0] == 200
        status_without, _, _ = await api.call("eve", "POST", path)
        assert status_without == (428 if kind is RequestKind.FORCE else 200)
        assert {(request.kind, request.number) for request in state.requests} == {(kind, 1)}


async def test_a_pipe_in_force_whose_deletion_waits_or_was_aborted_is_listed_and_can_be_deleted_again() -> (
    None
):
    state = State()
    async with served(state) as api:
        assert (await declare(api, "admin", body("spy"), NEW))[0] == 201
        state.put_in_force(Pipe.model_validate(body("spy")))
        for _ in range(2):
            _, _, tag = await api.call("eve", "GET", "/pipes/spy")
            assert (await api.call("eve", "DELETE", "/pipes/spy", headers=tag))[0] == 200
        _, answer, _ = await api.call("eve", "GET", "/pipes")
        assert [(pipe["pipe"], pipe["declared"]["deleted"]) for pipe in answer["pipes"]] == [("spy", True)]
        assert (await declare(api, "eve", body("spy"), NEW))[0] == 201
