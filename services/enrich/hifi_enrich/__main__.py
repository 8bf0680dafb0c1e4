"""Enrich: joins lookups, derives fields, filters and routes, in one Spark query for all pipes of a stream.

normalized > Spark, with pipes and lookups > enriched, dead-letter
"""

import contextlib

from hifi.kafka.certificate_reports import report_certificates
from hifi.kafka.leader_election import LeaderElection
from hifi.pipe.registry import PipeRegistry
from hifi.runtime.running import running
from hifi.runtime.service import Service, run
from hifi.spark.spark_session import scratch_folder
from hifi_enrich.lookup.tables import HEAP_SHARE, LookupTables
from hifi_enrich.query.engine import SparkEngine
from hifi_enrich.settings import EnrichSettings
from hifi_enrich.supervision.supervisor import Supervisor


async def enrich(service: Service, settings: EnrichSettings) -> None:
    """Run one instance: the leader, which runs the query of the stream, or a warm standby."""
    topics = settings.topics
    with scratch_folder(settings.enrich_temp) as scratch:
        registry = PipeRegistry(settings.kafka, topics, service.health, ("enrich",))
        tables = LookupTables(
            scratch, service.health, settings.lookup_limits, settings.driver_heap_bytes // HEAP_SHARE
        )
        engine = SparkEngine(settings, topics, registry, tables, scratch)
        election = LeaderElection(settings, topics.group("enrich-leader"), topics.enrich_leader)
        supervisor = Supervisor(service, settings, topics, registry, engine, election, tables)
        tables.on_change(supervisor.lookups_changed)
        async with contextlib.AsyncExitStack() as stack:
            stack.push_async_callback(engine.stop)
            stack.push_async_callback(tables.stop)
            await stack.enter_async_context(running(service, registry))
            await engine.start(registry.partition_count())
            await supervisor.run()


def main() -> None:
    """The command `hifi-enrich`."""
    run("enrich", EnrichSettings, enrich, report_certificates)


if __name__ == "__main__":
    main()
