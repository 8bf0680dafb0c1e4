"""The JSON API and the console. Every operation needs the token of a principal with its role."""

import asyncio
from collections.abc import Sequence
from dataclasses import asdict
from typing import Final, TypeVar

import orjson
from pydantic import BaseModel, ValidationError
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Mount

from hifi.control.declaration import NONE, Declaration, Origin, undeclared
from hifi.control.principals.audit import AuditEntry
from hifi.control.principals.gate import Gate
from hifi.control.principals.oidc.login import OidcLogin
from hifi.control.principals.principal import Principal
from hifi.control.principals.sign_in import SignIn, link_response
from hifi.control.request import RequestKind, request_about
from hifi.pipe.issued_key import IssuedKey, issued_key, new_key, rotated
from hifi.pipe.model import Pipe
from hifi.pipe.registry import HELD_ADVICE
from hifi.pipe.sources.step import StepSource
from hifi.runtime.clock import MICROSECONDS, now_us
from hifi.runtime.errors import Misconfigured
from hifi.runtime.health import version
from hifi.runtime.http.openapi import document, json_response
from hifi.runtime.http.problem import Problem, retry_later
from hifi.runtime.http.trusted_hosts import TrustedHosts
from hifi_manage.control_state import ControlState
from hifi_manage.pipe_text import TextProblem, read_pipe
from hifi_manage.trial import try_event
from hifi_manage.web.console import ManagementConsole
from hifi_manage.web.operations import API, NEEDS, OPERATIONS
from hifi_manage.web.pipe_requests import (
    body_of,
    changed_meanwhile,
    etag,
    exists,
    exists_or_in_force,
    flag,
    origin_of,
    replaced_number,
)
from hifi_manage.web.registry import PATH as REGISTRY_PATH
from hifi_manage.web.registry import registry_application
from hifi_manage.web.views import (
    KeyList,
    KeyRequest,
    NewKey,
    PipeList,
    PipeRollout,
    PrincipalList,
    ProblemList,
    RotationRequest,
    TrialRequest,
    VersionList,
    audit_view,
    pipe_view,
    trial_view,
    version_view,
    version_with_body,
)

_Body = TypeVar("_Body", bound=BaseModel)


def application(
    state: ControlState,
    observe_url: str,
    hosts: Sequence[str] = (),
    login: OidcLogin | None = None,
    url: str = "",
    view_url: str = "",
) -> Starlette:
    """Build the ASGI application of the API and the console.

    Args:
        state: of the control plane.
        observe_url: of observe's console; empty: there is none.
        hosts: names with a dot by which it is reached.
        login: with a provider; None: there is none.
        url: of the console, as browsers see it; empty: as each request has it.
        view_url: of view's console; empty: there is none.
    """
    gate = Gate(state, state.uses)
    api = ManagementApi(state, gate)
    console = ManagementConsole(observe_url, view_url)
    sign_in = SignIn(gate, console.pages, login, url)
    routes = sign_in.operations(OPERATIONS, api, NEEDS)
    routes.append(sign_in.api("/api/v1/openapi.json", "openapi", api.openapi, NEEDS, "GET"))
    routes.append(Mount(REGISTRY_PATH, registry_application(state)))
    return Starlette(
        routes=[*routes, *sign_in.routes(), *console.routes(sign_in)],
        exception_handlers={Problem: _problem},
        middleware=[Middleware(TrustedHosts, names=[*hosts, url])],
    )


_MOST_TEXTS: Final = 16
"""Most texts of pipes that are read or wait; each may take seconds."""


async def _problem(_: Request, error: Exception) -> Response:
    assert isinstance(error, Problem)
    return error.response()


class ManagementApi:
    """Handlers of the operations, one method for each; the table OPERATIONS has their paths and parameters."""

    def __init__(self, state: ControlState, gate: Gate) -> None:
        self._state = state
        self._gate = gate
        self._read_lock = asyncio.Lock()
        """Held while the text of a pipe is read."""
        self._texts = 0
        """Texts that are read, or wait for it."""

    async def openapi(self, _: Request, __: Principal) -> Response:
        """GET the OpenAPI document of this API."""
        return json_response(document(OPERATIONS, version("manage"), API))

    async def pipes(self, _: Request, principal: Principal) -> Response:
        """GET pipes: those in the principal's scope, without bodies."""
        state = self._state
        names = {*state.declared.newest, *(revision.pipe.pipe for revision in state.registry.all())}
        names |= state.registry.all_held().keys() | state.declared.unreadable.keys()
        visible_names = [
            name for name in sorted(names) if principal.sees(name) and exists_or_in_force(state, name)
        ]
        answer: PipeList = {"pipes": [pipe_view(state, name, bodies=False) for name in visible_names]}
        return json_response(answer)

    async def pipe(self, request: Request, _: Principal) -> Response:
        """GET a pipe with its ETag."""
        name = self._declared_or_in_force(request)
        return json_response(pipe_view(self._state, name), headers=etag(self._state.declared.number(name)))

    async def declare(self, request: Request, principal: Principal) -> Response:
        """PUT a pipe: declare it."""
        name = request.path_params["pipe"]
        text = await body_of(request)
        number = replaced_number(request, self._state, name)
        origin = origin_of(request)
        pipe = await self._checked(principal, name, text)
        return await self._change(request, principal, "declare", pipe, number, origin)

    async def delete(self, request: Request, principal: Principal) -> Response:
        """DELETE a pipe: declare that it is to be deleted."""
        name = self._declared_or_in_force(request)
        number = replaced_number(request, self._state, name)
        if not exists_or_in_force(self._state, name):
            raise _not_found(name)
        return await self._change(request, principal, "delete", None, number, origin_of(request))

    async def pause(self, request: Request, principal: Principal) -> Response:
        """POST: declare that the pipe takes no new events."""
        return await self._change_pause(request, principal, paused=True)

    async def resume(self, request: Request, principal: Principal) -> Response:
        """POST: declare that the pipe takes events again."""
        return await self._change_pause(request, principal, paused=False)

    async def versions(self, request: Request, _: Principal) -> Response:
        """GET the newest versions of a pipe."""
        declarations = self._state.declared.versions(self._declared_or_in_force(request))
        answer: VersionList = {
            "versions": [version_view(declaration) for declaration in reversed(declarations)]
        }
        return json_response(answer)

    async def version(self, request: Request, _: Principal) -> Response:
        """GET a version of a pipe."""
        return json_response(version_with_body(self._state, self._version(request)))

    async def roll_back(self, request: Request, principal: Principal) -> Response:
        """POST: declare an earlier version again, if it is still valid."""
        earlier_version = self._version(request)
        if earlier_version.pipe is None:
            raise Problem(409, "That version deleted the pipe; send DELETE to delete it again.")
        number = replaced_number(request, self._state, earlier_version.name)
        text = orjson.dumps(earlier_version.body())
        pipe = await self._checked(principal, earlier_version.name, text, declared=True)
        return await self._change(
            request, principal, f"roll back to {earlier_version.number}", pipe, number, Origin.API
        )

    async def check(self, request: Request, principal: Principal) -> Response:
        """POST: check a pipe without saving it."""
        text = await body_of(request)
        answer: ProblemList = {"problems": (await self._read_pipe(principal, text))[1]}
        return json_response(answer)

    async def trial(self, request: Request, principal: Principal) -> Response:
        """POST: evaluate a pipe for a test event; sends nothing."""
        try:
            body = TrialRequest.model_validate(orjson.loads(await body_of(request)))
        except ValueError:
            raise Problem(
                400, "Send a JSON object with `pipe`, the pipe in YAML, and `event`, the data of an event."
            ) from None
        pipe = await self._checked(principal, None, body.pipe.encode())
        try:
            trial = await asyncio.to_thread(try_event, pipe, orjson.dumps(body.event), now_us())
        except Misconfigured as error:
            raise Problem(422, f"{error}.", members={"problems": []}, title="The pipe has problems") from None
        return json_response(trial_view(trial))

    async def rollout(self, request: Request, principal: Principal) -> Response:
        """POST: pause, resume, abort or force a rollout."""
        name, state = self._declared_or_in_force(request), self._state
        try:
            kind = RequestKind(request.path_params["kind"])
        except ValueError:
            raise Problem(404, f"Ask for one of {', '.join(RequestKind)}.") from None
        if kind is RequestKind.FORCE or "if-match" in request.headers:
            replaced_number(request, state, name)  # the declaration that the caller has reviewed
        status = state.statuses().get(name)
        if status is None:
            raise Problem(409, f"The pipe {name} has no rollout: it was never declared.")
        try:
            change = request_about(status, kind, principal.name, now_us())
        except Misconfigured as error:
            raise Problem(409, f"{error}.") from None
        action = f"{kind.value} the rollout"
        entry = AuditEntry(principal.name, action, f"pipe/{name}", change.at_us, status.declaration)
        await state.ask(entry, change)
        answer: PipeRollout = {"pipe": name, "rollout": status}
        return json_response(answer)

    async def keys(self, request: Request, _: Principal) -> Response:
        """GET the issued write keys of a pipe."""
        return self._keys_of(self._declared_or_in_force(request))

    async def issue_key(self, request: Request, principal: Principal) -> Response:
        """POST: issue a write key of a pipe."""
        name = self._declared_or_in_force(request)
        self._require_one_mesh(f"issue {name} --key-file FILE")
        key_request = await _parsed(request, KeyRequest)
        at_us, secret = now_us(), new_key()
        expires_us = (
            None if key_request.expires_s is None else at_us + int(key_request.expires_s * MICROSECONDS)
        )
        try:
            key = issued_key(
                secret,
                name,
                origins=key_request.origins,
                expires_us=expires_us,
                author=principal.name,
                at_us=at_us,
            )
        except Misconfigured as error:
            raise Problem(400, f"{error}.", title="Invalid origin") from None
        entry = AuditEntry(principal.name, "issue the write key", f"write-key/{key.id}", at_us)
        await self._state.change_keys(entry, [key])
        return _new_key(secret, key)

    async def rotate_key(self, request: Request, principal: Principal) -> Response:
        """POST: issue a write key in place of another one, which goes on for the overlap."""
        old_key = self._issued(self._declared_or_in_force(request), request)
        self._require_one_mesh(f"rotate {old_key.id} --key-file FILE")
        rotation_request = await _parsed(request, RotationRequest)
        at_us, secret = now_us(), new_key()
        key, expiring = rotated(old_key, secret, rotation_request.overlap_s, principal.name, at_us)
        entry = AuditEntry(
            principal.name, "rotate the write key", f"write-key/{old_key.id}", at_us, old_key.json()
        )
        await self._state.change_keys(entry, [key, expiring], rotated_key=old_key)
        return _new_key(secret, key)

    async def revoke_key(self, request: Request, principal: Principal) -> Response:
        """DELETE: revoke a write key."""
        name = self._declared_or_in_force(request)
        revoked_key = self._issued(name, request)
        self._require_one_mesh(f"revoke {revoked_key.id}")
        entry = AuditEntry(
            principal.name,
            "revoke the write key",
            f"write-key/{revoked_key.id}",
            now_us(),
            revoked_key.json(),
        )
        await self._state.change_keys(entry, [], [revoked_key.id])
        return self._keys_of(name)

    def _keys_of(self, name: str) -> Response:
        uses = self._state.key_uses
        answer: KeyList = {
            "keys": [key.json(uses.at_us(key.id, key.at_us)) for key in self._state.keys.of_pipe(name)]
        }
        return json_response(answer)

    def _require_one_mesh(self, command: str) -> None:
        """Refuse to change write keys of two colours, which only a command that reaches both can keep the same.

        Args:
            command: of `hifi keys` that makes the change.

        Raises:
            Problem: 409.
        """
        if self._state.registry.coloured:
            raise Problem(
                409,
                "Nothing was changed: both colours need the same write keys, and manage reaches the Kafka of its own "
                f"colour only. Run `hifi keys {command}` with the --data of `hifi up --colours`: it writes to both. In "
                "containers, for each colour with the same file: `infra/docker/colours.sh compose COLOUR run --rm"
                f' --volume "$PWD:/keys" cli keys {command.replace("FILE", "/keys/FILE")}`.',
                title="Write keys of two colours",
            )

    def _issued(self, name: str, request: Request) -> IssuedKey:
        key = self._state.keys.by_id.get(request.path_params["key"])
        if key is None or key.pipe != name:
            raise Problem(404, f"{name} has no such issued write key.", title="No such write key")
        return key

    async def link(self, request: Request, principal: Principal) -> Response:
        """POST: make a link that opens the console signed in as the caller."""
        return link_response(self._gate, request, principal)

    async def me(self, _: Request, principal: Principal) -> Response:
        """GET the principal of the token."""
        return json_response(principal.json())

    async def principals(self, _: Request, principal: Principal) -> Response:
        """GET principals, without tokens."""
        if principal.pipes:
            raise Problem(403, "Only administrators of the whole stream may list the principals.")
        state = self._state
        principals_by_name, revoked = state.principals.by_name, state.principals.revoked
        answer: PrincipalList = {
            "principals": [
                {**entry.json(), "last_used_us": state.uses.at_us(entry.name, entry.at_us)}
                for _, entry in sorted(principals_by_name.items())
            ],
            "revoked": [revoked[name].json() for name in sorted(revoked)],
        }
        return json_response(answer)

    async def audit(self, _: Request, principal: Principal) -> Response:
        """GET the newest entries of the audit."""
        return json_response(audit_view(self._state, principal))

    async def _change_pause(self, request: Request, principal: Principal, *, paused: bool) -> Response:
        """Pause or resume, also a pipe that a file declares: its text stays as it is."""
        name, state = self._declared_or_in_force(request), self._state
        self._require_readable(name)
        number = replaced_number(request, state, name)
        newest, current = state.declared.newest.get(name), state.registry.get(name)
        if newest is None and current is not None:
            newest = undeclared(current)
        if newest is None or newest.pipe is None:
            raise _not_found(name)
        if newest.paused == paused:
            return json_response(pipe_view(state, name), headers=etag(number))
        declaration = newest.with_pause(principal.name, now_us(), paused=paused)
        action = "pause the pipe" if paused else "resume the pipe"
        return await self._declare(principal, action, declaration)

    async def _change(
        self,
        request: Request,
        principal: Principal,
        action: str,
        pipe: Pipe | None,
        number: int,
        origin: Origin,
    ) -> Response:
        """Declare, if nobody has changed the pipe since the caller read it."""
        name, state = request.path_params["pipe"], self._state
        newest, take_over = state.declared.newest.get(name), flag(request, "take_over")
        by_file = newest is not None and newest.pipe is not None and newest.origin is Origin.FILE
        if by_file and origin is Origin.API and not take_over:
            raise Problem(
                409,
                f"{name} is declared by file: change the file and run `hifi apply`. To change it here all the same, "
                "send `take_over=true`; the next `hifi apply` brings the file's version back.",
                title="Declared by file",
            )
        paused = pipe is not None and state.declared.paused(name, state.registry.get(name))
        declaration = Declaration(name, pipe, principal.name, now_us(), number, origin, paused)
        created = pipe is not None and (newest is None or newest.pipe is None)
        take_over = by_file and origin is Origin.API
        return await self._declare(
            principal, action, declaration, 201 if created else 200, take_over=take_over
        )

    async def _declare(
        self,
        principal: Principal,
        action: str,
        declaration: Declaration,
        status: int = 200,
        *,
        take_over: bool = False,
    ) -> Response:
        """Declare, and answer with the pipe as it is then.

        Raises:
            Problem: 409, what is declared or in force cannot be read, and must not be replaced; 412; 503.
        """
        state = self._state
        if declaration.pipe is not None:
            self._require_readable(declaration.name)
        number = None if declaration.replaces == NONE else declaration.replaces
        entry = AuditEntry(
            principal.name, action, f"pipe/{declaration.name}", declaration.at_us, number, take_over=take_over
        )
        counted_declaration = await state.declare(entry, declaration)
        if counted_declaration is None:
            raise changed_meanwhile(state, declaration.name)
        return json_response(pipe_view(state, declaration.name), status, etag(counted_declaration.number))

    def _require_readable(self, name: str) -> None:
        """Refuse to replace what is declared or in force if it cannot be read: it may be newer.

        Raises:
            Problem: 409.
        """
        if (hold_reason := self._state.held(name)) is not None:
            raise Problem(
                409,
                f"{name} is held: {hold_reason}. Nothing was changed. {HELD_ADVICE}.",
                title="The pipe cannot be read",
            )

    async def _read_pipe(
        self, principal: Principal, text: bytes, *, declared: bool = False
    ) -> tuple[Pipe | None, list[TextProblem]]:
        """As `read_pipe`, one text at a time, so that texts do not take the threads and CPU time of other requests.

        No problem names a pipe outside the scope of the principal.

        Raises:
            Problem: 503, many texts are waiting.
        """
        if self._texts >= _MOST_TEXTS:
            raise retry_later("Many texts of pipes are being checked. Try again.")
        self._texts += 1
        try:
            async with self._read_lock:
                other_pipes = self._declared_pipes()
                return await asyncio.to_thread(
                    read_pipe,
                    text,
                    other_pipes,
                    coloured=self._state.registry.coloured,
                    declared=declared,
                    hidden_names={name for name in other_pipes if not principal.sees(name)},
                )
        finally:
            self._texts -= 1

    async def _checked(
        self, principal: Principal, name: str | None, text: bytes, *, declared: bool = False
    ) -> Pipe:
        """The pipe of a text.

        Raises:
            Problem: 403, it reads a pipe outside the scope of the principal; 422, it has problems; 503.
        """
        pipe, problems = await self._read_pipe(principal, text, declared=declared)
        if pipe is not None:
            _require_inputs_in_scope(principal, pipe)
        if pipe is not None and name is not None and pipe.pipe != name:
            problems.append(TextProblem(1, 1, "pipe", f"is {pipe.pipe!r}, but the URL names {name!r}"))
        if pipe is None or problems:
            problem_rows = [asdict(problem) for problem in problems]
            raise Problem(
                422,
                f"{problems[0].where}: {problems[0].message}" if problems[0].where else problems[0].message,
                members={"problems": problem_rows},
                title="The pipe has problems",
            )
        return pipe

    def _declared_pipes(self) -> dict[str, Pipe]:
        """All pipes as they shall be: declared, or in force without a declaration."""
        pipes = {revision.pipe.pipe: revision.pipe for revision in self._state.registry.all()}
        for name, declaration in self._state.declared.newest.items():
            if declaration.pipe is None:
                pipes.pop(name, None)
            else:
                pipes[name] = declaration.pipe
        return pipes

    def _declared_or_in_force(self, request: Request) -> str:
        name: str = request.path_params["pipe"]
        if name not in self._state.declared.newest and not exists(self._state, name):
            raise _not_found(name)
        return name

    def _version(self, request: Request) -> Declaration:
        name, number_text = self._declared_or_in_force(request), request.path_params["number"]
        for declaration in self._state.declared.versions(name):
            if str(declaration.number) == number_text:
                return declaration
        raise Problem(
            404, f"{name} has no version {number_text} among its newest ones.", title="No such version"
        )


async def _parsed(request: Request, kind: type[_Body]) -> _Body:
    """The body of a request; an empty body is an empty object.

    Raises:
        Problem: 400, it is not of this kind; 413, it is too large.
    """
    try:
        return kind.model_validate_json(await body_of(request) or b"{}")
    except ValidationError as error:
        invalid_fields = "; ".join(
            f"{'.'.join(map(str, field['loc']))}: {field['msg']}" for field in error.errors()
        )
        raise Problem(400, f"{invalid_fields}.", title="Invalid body") from None


def _require_inputs_in_scope(principal: Principal, pipe: Pipe) -> None:
    """Refuse a step that reads a pipe outside the scope of a principal, who would get that pipe's events by it.

    Raises:
        Problem: 403.
    """
    read_names = pipe.source.read_pipes if isinstance(pipe.source, StepSource) else ()
    if hidden_names := [name for name in read_names if not principal.sees(name)]:
        raise Problem(
            403,
            f"{principal.name} may use the pipes {', '.join(principal.pipes)} only, and this step reads events of "
            f"{', '.join(hidden_names)}. Have an administrator of all of them declare it, and each change of it.",
        )


def _new_key(secret: str, key: IssuedKey) -> Response:
    answer: NewKey = {"secret": secret, "key": key.json()}
    return json_response(answer, 201, {"cache-control": "no-store"})


def _not_found(name: str) -> Problem:
    return Problem(404, f"No pipe {name} is declared or in force.", title="No such pipe")
