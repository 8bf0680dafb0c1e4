"""The HTTP side of the chain's ingest: CloudEvents in, one event or a batch a request."""

import os
from collections.abc import Awaitable, Callable
from typing import Any

import orjson
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

Publish = Callable[[list[dict[str, Any]]], Awaitable[None]]


def read(request: Request, body: bytes) -> list[dict[str, Any]]:
    """The events of a request, each `{"attributes": …, "data": …}`."""
    content = orjson.loads(body)
    if request.headers["content-type"].startswith("application/cloudevents-batch"):
        return [{"data": event.pop("data"), "attributes": event} for event in content]
    attributes = {name[3:]: value for name, value in request.headers.items() if name.startswith("ce-")}
    return [{"attributes": attributes, "data": content}]


def key(event: dict[str, Any]) -> bytes:
    """Events of one plane keep their order."""
    return str(event["attributes"].get("partitionkey") or event["attributes"]["id"]).encode()


def serve(publish: Publish, lifespan: Any) -> None:
    """Serve until SIGTERM; 202 once Kafka has everything."""

    async def take(request: Request) -> Response:
        await publish(read(request, await request.body()))
        return Response(status_code=202)

    async def ready(_: Request) -> Response:
        return Response("ready")

    app = Starlette(
        routes=[Route("/v1/events", take, methods=["POST"]), Route("/readyz", ready)], lifespan=lifespan
    )
    port = int(os.environ["CHAIN_PORT"])
    uvicorn.run(app, host="127.0.0.1", port=port, access_log=False, log_level="warning", backlog=2048)
