"""Lake: writes the events of pipes with an Iceberg destination to its table, in one Spark query for all tables.

enriched > Spark, with pipes > data files > commit > receipts, dead-letter
"""

import asyncio

from hifi.delivery.published_watermarks import PublishedWatermarks
from hifi.kafka.certificate_reports import report_certificates
from hifi.kafka.leader_election import LeaderElection
from hifi.kafka.stream_log import StreamLog
from hifi.pipe.registry import PipeRegistry
from hifi.runtime.running import running
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
        registry = PipeRegistry(settings.kafka, topics, service.health, ("destinations",))
        stream_log = StreamLog(settings.kafka, topics, service.health)
        watermarks = PublishedWatermarks(settings.kafka, settings.instance, topics)
        election = LeaderElection(settings, topics.group("lake-leader"), topics.lake_leader)
        service.health.block("spark", "Spark is starting")
        async with running(service, registry, stream_log, watermarks):
            spark = await asyncio.to_thread(start_session, settings, scratch)
            try:
                service.health.unblock("spark")
                stream = LakeStream(
                    settings.kafka,
                    settings.instance,
                    topics,
                    registry,
                    stream_log.identity,
                    election,
                    service.health,
                    watermarks,
                )
                partitions = registry.partition_count()
                await QuerySupervisor(service, settings, spark, stream, election, partitions, scratch).run()
            finally:
                await asyncio.to_thread(stop_spark, spark)


def main() -> None:
    """The command `hifi-lake`."""
    run("lake", LakeSettings, lake, report_certificates)


if __name__ == "__main__":
    main()
