"""Enrich: joins lookups, derives fields, filters and routes, in one Spark query for all pipes of a stream.

normalized > Spark, with pipes and lookups > enriched, dead-letter
"""

from hifi.kafka.leader_election import LeaderElection
from hifi.pipe.registry import PipeRegistry
from hifi.runtime.service import Service, run
from hifi.spark.spark_session import scratch_folder
from hifi_enrich.lookup.tables import LookupTables
from hifi_enrich.query.engine import SparkEngine
from hifi_enrich.settings import EnrichSettings
from hifi_enrich.supervision.supervisor import Supervisor


async def enrich(service: Service, settings: EnrichSettings) -> None:
    """Run one instance: the leader, which runs the query of the stream, or a warm standby."""
    topics = settings.topics
    with scratch_folder(settings.enrich_temp) as scratch:
        registry = PipeRegistry(settings.kafka, topics, service.health)
        tables = LookupTables(scratch)
        engine = SparkEngine(settings, topics, registry, tables, scratch)
        election = LeaderElection(settings, topics.group("enrich-leader"), topics.enrich_leader)
        supervisor = Supervisor(service, settings, topics, registry, engine, election)
        tables.on_change(supervisor.lookups_changed)
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
