"""Enrich: joins lookups, derives fields, filters and routes, in one Spark query for all pipes of a stream.

normalized > [pipes, lookups] > Spark > enriched, dead-letter
"""

from hifi.pipe.registry import PipeRegistry
from hifi.service import Service, run
from hifi.topics import Topics
from hifi_enrich.engine import Engine
from hifi_enrich.leader import Leadership
from hifi_enrich.lookup.tables import Tables
from hifi_enrich.session import temp_folder
from hifi_enrich.settings import EnrichSettings
from hifi_enrich.supervisor import Supervisor


async def enrich(service: Service, settings: EnrichSettings) -> None:
    """Run one instance: the active driver of the stream, or a warm standby."""
    topics = Topics(settings.stream)
    with temp_folder(settings.enrich_temp) as temp:
        registry = PipeRegistry(settings.kafka, topics, service.health)
        tables = Tables(temp)
        engine = Engine(settings, topics, registry, tables, temp)
        supervisor = Supervisor(service, settings, topics, registry, engine, Leadership(settings, topics))
        tables.on_change(supervisor.changed)
        try:
            if await service.unless_stopped(registry.start()):
                await engine.start(registry.partitions or 1)
                await supervisor.run()
        finally:
            await registry.stop()
            await tables.stop()
            await engine.stop()


def main() -> None:
    """The command `hifi-enrich`."""
    run("enrich", EnrichSettings, enrich)


if __name__ == "__main__":
    main()
