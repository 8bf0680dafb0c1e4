"""The schema registry over HTTP, with the paths, bodies and error codes of Confluent's registry."""

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, Final

import orjson
from aiokafka.errors import KafkaError
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from hifi.avro.registry_client import AVRO, MEDIA_TYPE
from hifi.control.principals.audit import AuditEntry
from hifi.control.principals.principal import Principal, Role
from hifi.runtime.clock import now_us
from hifi.runtime.http.parameters import whole_number
from hifi.runtime.http.problem import Problem
from hifi_manage.control_state import ControlState
from hifi_manage.schemas import changes
from hifi_manage.schemas.refusals import UNAVAILABLE, RegistryRefusal, schema_not_found, subject_not_found
from hifi_manage.schemas.registered import Registered, Version
from hifi_manage.schemas.schema_store import Plan
from hifi_manage.web.registry_access import check_scope, registry_principal
from hifi_manage.web.registry_requests import is_set, level_of, schema_of, version_of

PATH: Final = "/registry"
_SUBJECT: Final = "/subjects/{subject:path}"
_VERSION: Final = _SUBJECT + "/versions/{version}"
_CONFIG: Final = "/config/{subject:path}"

Handler = Callable[[Request, Principal], Awaitable[Any]]


def registry_application(state: ControlState) -> Starlette:
    """Build the ASGI application, to be mounted at `PATH`."""
    registry = SchemaRegistry(state)
    # Subjects may contain slashes: the longer paths come first.
    route_table: Sequence[tuple[str, str, Role, Handler]] = (
        ("GET", "/schemas/types", Role.VIEWER, registry.types),
        ("GET", "/schemas/ids/{id}", Role.VIEWER, registry.schema),
        ("GET", "/schemas/ids/{id}/schema", Role.VIEWER, registry.schema_text),
        ("GET", "/schemas/ids/{id}/subjects", Role.VIEWER, registry.subjects_of_schema),
        ("GET", "/schemas/ids/{id}/versions", Role.VIEWER, registry.versions_of_schema),
        ("GET", "/subjects", Role.VIEWER, registry.subjects),
        ("GET", _VERSION + "/schema", Role.VIEWER, registry.version_text),
        ("GET", _VERSION + "/referencedby", Role.VIEWER, registry.referenced_by),
        ("GET", _VERSION, Role.VIEWER, registry.version),
        ("DELETE", _VERSION, Role.ADMIN, registry.delete_version),
        ("GET", _SUBJECT + "/versions", Role.VIEWER, registry.versions),
        ("POST", _SUBJECT + "/versions", Role.OPERATOR, registry.register),
        ("POST", _SUBJECT, Role.VIEWER, registry.find),
        ("DELETE", _SUBJECT, Role.ADMIN, registry.delete),
        ("POST", "/compatibility" + _VERSION, Role.VIEWER, registry.compatibility),
        ("POST", "/compatibility" + _SUBJECT + "/versions", Role.VIEWER, registry.compatibility_of_all),
        ("GET", "/config", Role.VIEWER, registry.level),
        ("PUT", "/config", Role.ADMIN, registry.set_level),
        ("DELETE", "/config", Role.ADMIN, registry.remove_level),
        ("GET", _CONFIG, Role.VIEWER, registry.level),
        ("PUT", _CONFIG, Role.ADMIN, registry.set_level),
        ("DELETE", _CONFIG, Role.ADMIN, registry.remove_level),
        ("GET", "/mode", Role.VIEWER, registry.mode),
        ("GET", "/mode/{subject:path}", Role.VIEWER, registry.mode),
        ("GET", "/", Role.VIEWER, registry.root),
    )
    return Starlette(
        routes=[
            Route(path, _endpoint(state, role, handle), methods=[method])
            for method, path, role, handle in route_table
        ],
        exception_handlers={
            Problem: _problem,
            RegistryRefusal: _refusal,
            404: _unknown_path,
            405: _unknown_path,
        },
    )


def _endpoint(state: ControlState, role: Role, handle: Handler) -> Callable[[Request], Awaitable[Response]]:
    async def authenticated(request: Request) -> Response:
        """Handle the request as the principal that sent it."""
        return _answer(await handle(request, registry_principal(request, state, role)))

    return authenticated


def _answer(body: Any, status: int = 200, headers: Sequence[tuple[str, str]] = ()) -> Response:
    return Response(orjson.dumps(body), status, {"cache-control": "no-store", **dict(headers)}, MEDIA_TYPE)


async def _refusal(_: Request, error: Exception) -> Response:
    assert isinstance(error, RegistryRefusal)
    return _answer({"error_code": error.code, "message": error.message}, error.status)


async def _problem(_: Request, error: Exception) -> Response:
    assert isinstance(error, Problem)
    return _answer({"error_code": error.status, "message": error.detail}, error.status, error.headers)


async def _unknown_path(request: Request, error: Exception) -> Response:
    del error
    return _answer(
        {"error_code": 404, "message": f"HTTP 404 Not Found: {request.method} {request.url.path}"}, 404
    )


class SchemaRegistry:
    """Handlers of the operations."""

    def __init__(self, state: ControlState) -> None:
        self._state = state

    async def root(self, _: Request, __: Principal) -> Any:
        """GET nothing, which shows that the registry is there."""
        return {}

    async def types(self, _: Request, __: Principal) -> Any:
        """GET the types of schemas."""
        return [AVRO]

    async def schema(self, request: Request, _: Principal) -> Any:
        """GET a schema by its id."""
        schema = (await self._of_id(request))[0].json()
        return {name: schema[name] for name in ("schema", "references") if name in schema}

    async def schema_text(self, request: Request, _: Principal) -> Any:
        """GET a schema by its id, alone."""
        return orjson.Fragment((await self._of_id(request))[0].body.text)

    async def subjects_of_schema(self, request: Request, _: Principal) -> Any:
        """GET the subjects that have a schema."""
        return sorted(
            {version.subject for version in await self._of_id(request) if _is_listed(request, version)}
        )

    async def versions_of_schema(self, request: Request, _: Principal) -> Any:
        """GET the versions of subjects that are a schema."""
        versions = await self._of_id(request)
        return [
            {"subject": version.subject, "version": version.number}
            for version in versions
            if _is_listed(request, version)
        ]

    async def subjects(self, request: Request, _: Principal) -> Any:
        """GET the subjects."""
        registered, prefix = await self._newest_registry(), request.query_params.get("subjectPrefix", "")
        prefix = prefix.removeprefix(":*:")
        return [
            name
            for name in sorted(registered.subjects)
            if name.startswith(prefix) and registered.versions(name, deleted=is_set(request, "deleted"))
        ]

    async def versions(self, request: Request, _: Principal) -> Any:
        """GET the numbers of a subject's versions."""
        versions = (await self._newest_registry()).versions(
            _subject(request), deleted=is_set(request, "deleted")
        )
        if not versions:
            raise subject_not_found(_subject(request))
        return [version.number for version in versions]

    async def version(self, request: Request, _: Principal) -> Any:
        """GET a version of a subject."""
        return (await self._version(request)).json()

    async def version_text(self, request: Request, _: Principal) -> Any:
        """GET the schema of a version, alone."""
        return orjson.Fragment((await self._version(request)).body.text)

    async def referenced_by(self, request: Request, _: Principal) -> Any:
        """GET the ids of the schemas that refer to a version."""
        version = await self._version(request)
        return sorted(
            {
                referrer.id
                for referrer in self._state.schemas.registered.referrers(version)
                if not referrer.deleted
            }
        )

    async def register(self, request: Request, principal: Principal) -> Any:
        """POST a schema: register it."""
        body = await schema_of(request, registers=True)
        normalize = is_set(request, "normalize")
        plan = partial(changes.registration, subject=_subject(request), body=body, normalize=normalize)
        return await self._change(principal, "register", _subject(request), plan)

    async def find(self, request: Request, _: Principal) -> Any:
        """POST a schema: look it up under a subject."""
        body, registered, subject = await schema_of(request), await self._newest_registry(), _subject(request)
        if not registered.versions(subject, deleted=is_set(request, "deleted")):
            raise subject_not_found(subject)
        version = changes.find(
            registered,
            subject,
            body,
            with_deleted=is_set(request, "deleted"),
            normalize=is_set(request, "normalize"),
        )
        if version is None:
            registered.read(body)
            raise schema_not_found()
        return version.json()

    async def delete(self, request: Request, principal: Principal) -> Any:
        """DELETE a subject."""
        plan = partial(changes.deletion, subject=_subject(request), permanent=is_set(request, "permanent"))
        return await self._change(principal, "delete", _subject(request), plan)

    async def delete_version(self, request: Request, principal: Principal) -> Any:
        """DELETE a version of a subject."""
        subject, number, permanent = _subject(request), version_of(request), is_set(request, "permanent")

        def plan(registered: Registered) -> changes.RegistryChange:
            """Find the version in the newest state."""
            version = changes.the_version(registered, subject, number, with_deleted=number is not None)
            return changes.version_deletion(registered, version, permanent=permanent)

        return await self._change(principal, "delete version", subject, plan)

    async def compatibility(self, request: Request, _: Principal) -> Any:
        """POST a schema: check it against one version of a subject."""
        body, registered, number = (
            await schema_of(request),
            await self._newest_registry(),
            version_of(request),
        )
        versions = registered.versions(_subject(request))
        if number is not None:
            versions = [changes.the_version(registered, _subject(request), number)]
        return _verdict(request, registered, body, versions[-1:])

    async def compatibility_of_all(self, request: Request, _: Principal) -> Any:
        """POST a schema: check it against the versions of a subject that count."""
        body, registered = await schema_of(request), await self._newest_registry()
        return _verdict(request, registered, body, registered.versions(_subject(request)))

    async def level(self, request: Request, _: Principal) -> Any:
        """GET the compatibility level of a subject, or of those without one."""
        registered, subject = await self._newest_registry(), request.path_params.get("subject")
        if (
            subject is not None
            and subject not in registered.levels
            and not is_set(request, "defaultToGlobal")
        ):
            raise changes.no_level(subject)
        return {"compatibilityLevel": registered.level(subject).value}

    async def set_level(self, request: Request, principal: Principal) -> Any:
        """PUT the compatibility level of a subject, or of those without one."""
        subject, level = request.path_params.get("subject"), await level_of(request)
        plan = partial(changes.level_change, subject=subject, level=level)
        return await self._change(principal, f"set compatibility {level.value}", subject, plan)

    async def remove_level(self, request: Request, principal: Principal) -> Any:
        """DELETE the compatibility level of a subject, or of those without one."""
        subject = request.path_params.get("subject")
        plan = partial(changes.level_removal, subject=subject)
        return await self._change(principal, "remove compatibility", subject, plan)

    async def mode(self, _: Request, __: Principal) -> Any:
        """GET the mode; there is only this one."""
        return {"mode": "READWRITE"}

    async def _change(self, principal: Principal, action: str, subject: str | None, plan: Plan) -> Any:
        """Make a change; what would change nothing needs no scope and no entry of the audit."""
        change = plan(await self._newest_registry())
        if change.records:
            state = self._state
            pipes = {revision.pipe.pipe for revision in state.registry.all()}
            pipes |= state.declared.newest.keys() | state.declared.unreadable.keys()
            check_scope(principal, subject, pipes | state.registry.all_held().keys())
            audited_subject = "schemas" if subject is None else f"schema/{subject}"
            entry = AuditEntry(principal.name, f"{action} schema", audited_subject, now_us())
            change = await self._state.change_schemas(entry, plan)
        return change.answer

    async def _newest_registry(self) -> Registered:
        """The registry as it is now, whichever instance changed it last."""
        try:
            await self._state.schemas.catch_up()
        except (KafkaError, OSError, TimeoutError) as error:
            raise RegistryRefusal(UNAVAILABLE, f"Kafka does not answer ({error!r}). Try again.") from error
        return self._state.schemas.registered

    async def _of_id(self, request: Request) -> list[Version]:
        schema_id = whole_number(request.path_params["id"])
        if schema_id is None:
            raise schema_not_found(f"Schema {request.path_params['id']}")
        versions = self._state.schemas.registered.of_id(schema_id) or (await self._newest_registry()).of_id(
            schema_id
        )
        if not versions:
            raise schema_not_found(f"Schema {schema_id}")
        return versions

    async def _version(self, request: Request) -> Version:
        number, deleted = version_of(request), is_set(request, "deleted")
        return changes.the_version(
            await self._newest_registry(), _subject(request), number, with_deleted=deleted
        )


def _subject(request: Request) -> str:
    return str(request.path_params["subject"])


def _is_listed(request: Request, version: Version) -> bool:
    return not version.deleted or is_set(request, "deleted")


def _verdict(request: Request, registered: Registered, body: Any, versions: Sequence[Version]) -> Any:
    registered.require_references(body)
    new_schema, level = registered.read(body), registered.level(_subject(request))
    problems = list(
        level.problems(new_schema, [(version.number, registered.read(version.body)) for version in versions])
    )
    verdict: dict[str, Any] = {"is_compatible": not problems}
    if is_set(request, "verbose"):
        verdict["messages"] = problems
    return verdict
