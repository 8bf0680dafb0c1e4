"""ingest: HTTP > events > raw, and each second > accepted. It answers 2xx only after Kafka acknowledged."""

import asyncio

from hifi import log
from hifi.http import server
from hifi.http.limits import Limits
from hifi.kafka.producer import Producer
from hifi.pipe.registry import PipeRegistry
from hifi.service import Service, run
from hifi.topics import Topics
from hifi_ingest.http.app import App
from hifi_ingest.http.context import Taker
from hifi_ingest.http.write_keys import WriteKeys
from hifi_ingest.lifecycle import connect, keep_telling, settle
from hifi_ingest.settings import IngestSettings

logger = log.get(__name__)


async def ingest(service: Service, settings: IngestSettings) -> None:
    """Take events until the service stops."""
    app = App(service.health)
    registry = PipeRegistry(settings.kafka, Topics(settings.stream), service.health)
    keys = WriteKeys(registry, service.health, settings.ingest_keys_refresh_s)
    producer = Producer(settings.kafka, settings.instance, buffer_bytes=settings.ingest_buffer_bytes)
    limits = Limits(
        head_bytes=settings.ingest_max_head_bytes,
        head_s=settings.ingest_head_timeout_s,
        request_s=settings.ingest_body_timeout_s,
        connections=settings.ingest_max_connections,
    )
    sock = server.listen(settings.ingest_host, settings.ingest_port, shared=True)
    async with server.serve(app, sock, drain_s=settings.drain_s / 2, limits=limits, refused=app.count):
        logger.info("taking-events", host=settings.ingest_host, port=sock.getsockname()[1])
        if not await service.unless_stopped(connect(settings, registry, keys, producer, service.health)):
            return
        taker = Taker(settings, registry, keys, producer)
        app.open(taker)
        service.health.state = "running"
        telling = asyncio.create_task(keep_telling(taker.tally, producer, service.health))
        await service.stopping.wait()
    telling.cancel()
    await settle(taker.tally, producer)
    await keys.stop()
    await registry.stop()


def main() -> None:
    """The program `hifi-ingest`."""
    run("ingest", IngestSettings, ingest)


if __name__ == "__main__":
    main()
