"""Lake: writes the events of pipes with an Iceberg destination to its table, in one Spark query for all tables.

enriched > Spark, with pipes > data files > commit > receipts, dead-letter
"""

import asyncio

from hifi.kafka.leader_election import LeaderElection
from hifi.pipe.registry import PipeRegistry
from hifi.runtime.service import Service, run
from hifi.spark.spark_session import scratch_folder, stop_spark
from hifi_lake.query.session import start_session
from hifi_lake.query.supervisor import QuerySupervisor
from hifi_lake.settings import LakeSettings
from hifi_lake.stream import LakeStream


async def lake(service: Service, settings: LakeSettings) -> None:
    """Run one instance: the leader, which runs the query of the stream, or a standby."""
    topics = settings.topics
    with scratch_folder(settings.lake_temp) as scratch:
        registry = PipeRegistry(settings.kafka, topics, service.health)
        election = LeaderElection(settings, topics.group("lake-leader"), topics.lake_leader)
        service.health.block("spark", "Spark is starting")
        try:
            if await service.unless_stopped(registry.start()):
                spark = await asyncio.to_thread(start_session, settings, scratch)
                service.health.unblock("spark")
                stream = LakeStream(settings.kafka, topics, registry, election, service.health)
                partitions = registry.partitions or 1
                try:
                    await QuerySupervisor(
                        service, settings, spark, stream, election, partitions, scratch
                    ).run()
                finally:
                    await asyncio.to_thread(stop_spark, spark)
        finally:
            await registry.stop()


def main() -> None:
    """The command `hifi-lake`."""
    run("lake", LakeSettings, lake)


if __name__ == "__main__":
    main()
