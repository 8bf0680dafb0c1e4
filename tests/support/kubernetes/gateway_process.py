"""`python -m tests.support.kubernetes.gateway_process TOKEN_FILE NAMESPACE`: a Gateway in user space, on a node.

It accepts the HTTPRoute before two colours, and passes each request to one of its Services, chosen by chance as the
weights say. A Service that does not answer is status 503.
"""

import asyncio
import random
import sys
from pathlib import Path
from typing import Final

import aiohttp
from aiohttp import web
from tests.support.kubernetes.caretaker import working_beside
from tests.support.kubernetes.gateway import RealGateway
from tests.support.kubernetes.places import ADDRESS, API, NODE

from hifi.runtime.errors import Retryable
from hifi_infra.kubernetes.kubernetes_api import ApiAccess

PORT: Final = 8888
_PASSED_ON: Final = {"authorization", "content-type"}
"""Headers of requests that ingest reads."""


class Gateway:
    """The Gateway.

    Args:
        session: for the requests that are passed on.
        api: with the route.
    """

    def __init__(self, session: aiohttp.ClientSession, api: RealGateway) -> None:
        self._session = session
        self._api = api

    async def pass_on(self, request: web.Request) -> web.Response:
        """The answer of one of the Services."""
        weights = self._api.weights
        if not any(weights.values()):
            return web.Response(status=503, text="the route has no weights")
        try:
            [name] = random.choices(list(weights), list(weights.values()))
            service = await self._api.get("v1", "services", name)
            async with self._session.request(
                request.method,
                f"http://{service['spec']['clusterIP']}:8080{request.path_qs}",
                data=await request.read(),
                headers={
                    name: value for name, value in request.headers.items() if name.lower() in _PASSED_ON
                },
            ) as answer:
                return web.Response(status=answer.status, body=await answer.read())
        except (Retryable, aiohttp.ClientError, TimeoutError) as error:
            return web.Response(status=503, text=repr(error))


async def main(token_file: Path, namespace: str) -> None:
    """Serve until SIGKILL."""
    access = ApiAccess(API, token_file, Path(NODE, "keys/authority.crt"), namespace)
    async with aiohttp.ClientSession() as session:
        api = RealGateway(session, access)
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", Gateway(session, api).pass_on)
        runner = web.AppRunner(app)
        await runner.setup()
        await web.TCPSite(runner, ADDRESS, PORT).start()
        async with working_beside(api.look_after_route()):
            await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), sys.argv[2]))
