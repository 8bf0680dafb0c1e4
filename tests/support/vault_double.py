"""A double of HashiCorp Vault, of which no server is at hand: it answers as the documentation of its HTTP API says.

Tokens, policies by path, KV version 2 with versions and their metadata, namespaces, and the seal. Sources:
https://developer.hashicorp.com/vault/api-docs and /vault/api-docs/secret/kv/kv-v2.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

from hifi.pipe.secret_manager import secret_memory

_CREATED = "2026-11-01T08:00:00.123456789Z"


@dataclass
class VaultDouble:
    """A double of a Vault with one KV secrets engine."""

    url: str = ""
    mount: str = "secret"
    namespace: str = ""
    sealed: bool = False
    tokens: dict[str, set[str]] = field(default_factory=lambda: {"a-token": {""}})
    """Token to the paths below which it may read."""
    requests: list[tuple[str, dict[str, str]]] = field(default_factory=list)
    """Path and headers of each request."""
    answer: tuple[int, str] | None = None
    """Status and body instead of any other answer."""
    failing: set[str] = field(default_factory=set)
    """Paths for which it answers 500."""
    delay_s: float = 0.0
    _versions: dict[str, list[dict[str, Any] | None]] = field(default_factory=dict)

    def write(self, path: str, **fields: Any) -> None:
        """Write a new version of a secret."""
        self._versions.setdefault(path, []).append(fields)

    def delete(self, path: str) -> None:
        """Delete the newest version of a secret."""
        self._versions[path][-1] = None

    async def handle(self, request: web.Request) -> web.Response:
        """Answer a request."""
        self.requests.append((request.path, dict(request.headers)))
        await asyncio.sleep(self.delay_s)
        if self.answer is not None:
            return web.Response(status=self.answer[0], text=self.answer[1])
        if self.sealed:
            return _errors(503, "Vault is sealed")
        allowed_paths = self.tokens.get(request.headers.get("X-Vault-Token", ""))
        if allowed_paths is None:
            return _errors(403, "2 errors occurred:\n\t* permission denied\n\t* invalid token\n\n")
        if request.path == "/v1/auth/token/lookup-self":
            return _answer(200, {"id": "…", "ttl": 3600, "policies": ["default"]})
        return self._read(request, allowed_paths)

    def _read(self, request: web.Request, allowed: set[str]) -> web.Response:
        prefix = f"/v1/{self.mount}/data/"
        is_known_namespace = request.headers.get("X-Vault-Namespace", "") == self.namespace
        if not is_known_namespace or not request.path.startswith(prefix):
            return _errors(404, f'no handler for route "{request.path}". route entry not found.')
        path = request.path.removeprefix(prefix)
        if not any(path.startswith(below) for below in allowed):
            return _errors(403, "1 error occurred:\n\t* permission denied\n\n")
        if path in self.failing:
            return _errors(500, "1 error occurred:\n\t* cannot be decrypted\n\n")
        versions = self._versions.get(path)
        if versions is None:
            return _errors(404)
        is_deleted = versions[-1] is None
        metadata = {
            "created_time": _CREATED,
            "custom_metadata": None,
            "deletion_time": _CREATED if is_deleted else "",
            "destroyed": False,
            "version": len(versions),
        }
        return _answer(404 if is_deleted else 200, {"data": versions[-1], "metadata": metadata})


def _answer(status: int, data: Any) -> web.Response:
    head_fields = {"request_id": "2f1a", "lease_id": "", "renewable": False, "lease_duration": 0}
    tail_fields = {"wrap_info": None, "warnings": None, "auth": None, "mount_type": "kv"}
    return web.json_response({**head_fields, "data": data, **tail_fields}, status=status)


def _errors(status: int, *errors: str) -> web.Response:
    return web.json_response({"errors": list(errors)}, status=status)


def forget_secrets() -> None:
    """End the refresh of the secrets that this process has read; the next ones are read with the settings of then."""
    if secret_memory.cache_info().currsize:
        secret_memory().stop()
        secret_memory.cache_clear()


@asynccontextmanager
async def running_vault(double: VaultDouble | None = None) -> AsyncIterator[VaultDouble]:
    """Serve a double on a free port."""
    double = double or VaultDouble()
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", double.handle)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    double.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    try:
        yield double
    finally:
        forget_secrets()
        await runner.cleanup()
