"""state: enriched > the windows of each step, with Spark > the results of closed windows > raw.

What does not count, such as late events, becomes a dead letter. The progress of each step is on the topic `folds`.
"""

import asyncio
from typing import Final

from hifi.delivery.ack_report import AckReporter
from hifi.delivery.ack_reporting import AckReports
from hifi.delivery.raw_writer import RawWriter
from hifi.kafka.certificate_reports import report_certificates
from hifi.kafka.producer import Producer
from hifi.kafka.topic_check import TopicCheck
from hifi.pipe.registry import PipeRegistry
from hifi.runtime.running import running
from hifi.runtime.service import Service, run
from hifi.spark.bulk_session import start_bulk_session
from hifi.spark.catalyst import Catalyst
from hifi.spark.spark_session import scratch_folder, stop_spark
from hifi_state.settings import StateSettings
from hifi_state.step_times_log import StepTimesLog
from hifi_state.steps import Steps

SERVICE: Final = "state"


async def state(service: Service, settings: StateSettings) -> None:
    """Run the steps for which this instance is elected until the service stops."""
    topics, health = settings.topics, service.health
    with scratch_folder(settings.state_temp) as scratch:
        registry = PipeRegistry(settings.kafka, topics, health)
        written_topics = [topics.raw, topics.accepted, topics.dead_letter]
        topic_check = TopicCheck(settings.kafka, written_topics, registry.partition_count, health)
        producer = Producer(
            settings.kafka,
            settings.instance,
            buffer_bytes=settings.state_buffer_bytes,
            in_step=True,
            health=health,
        )
        times_log = StepTimesLog(settings)
        health.block("spark", "Spark is starting")
        async with running(service, registry, topic_check, producer, background_work=[times_log.follow]):
            spark = await asyncio.to_thread(
                start_bulk_session,
                settings,
                SERVICE,
                scratch,
                settings.state_master,
                settings.state_driver_memory,
                settings.state_conf,
            )
            try:
                health.unblock("spark")
                reporter = AckReporter(producer, topics.accepted, registry.partition_count(), service=SERVICE)
                writer = RawWriter(producer, topics.raw, reporter, settings.time_tolerance_s)
                folder = settings.state_data or scratch / "windows"
                folder.mkdir(parents=True, exist_ok=True)
                catalyst = await asyncio.to_thread(Catalyst, spark)
                steps = Steps(service, settings, catalyst, registry, writer, producer, folder, times_log)
                async with running(service, AckReports(reporter, producer, health)):
                    health.state = "running"
                    await steps.run()
            finally:
                await asyncio.to_thread(stop_spark, spark)


def main() -> None:
    """The command `hifi-state`."""
    run(SERVICE, StateSettings, state, report_certificates)


if __name__ == "__main__":
    main()
