"""Three brokers, and enrich on a Spark cluster: killed containers are replaced and nothing is lost."""

import asyncio
import time
from collections.abc import Callable

import pytest
from tests.support.containers.stack import ComposeMesh, SteadySender, all_arrived_once, run, until

# Without containers: test_three_brokers_accept_with_one_dead_refuse_with_two_and_lose_nothing, tests of the standby in
# tests/services/enrich, and test_security.py there, which uses a Spark cluster.
pytestmark = pytest.mark.more
MakeMesh = Callable[..., ComposeMesh]
MakeSender = Callable[[ComposeMesh], SteadySender]


async def run_steps(*steps: Callable[[], object]) -> None:
    for step in steps:
        await asyncio.to_thread(step)
        await asyncio.sleep(5)


async def test_one_broker_of_three_may_die_under_load(make_mesh: MakeMesh, sender: MakeSender) -> None:
    mesh = make_mesh("three", "infra/compose.three.yaml")
    mesh.up()

    def healthy_again() -> None:
        until(lambda: mesh.health("kafka-2") == ["healthy"], "the broker is back")

    event_sender = sender(mesh)
    await event_sender.send_while(
        run_steps(lambda: time.sleep(3), lambda: mesh.crash("kafka-2"), healthy_again)
    )
    all_arrived_once(mesh, event_sender)
    mesh.down()


@pytest.fixture(scope="module")
def spark(make_mesh: MakeMesh) -> ComposeMesh:
    mesh = make_mesh("spark", "infra/compose.spark.yaml")
    mesh.up()
    return mesh


async def test_events_pass_a_spark_cluster_whose_workers_scale_alone_and_one_may_die(
    spark: ComposeMesh, sender: MakeSender
) -> None:
    event_sender = sender(spark)
    scale = ("--no-recreate", "--scale", "spark-worker=3")
    await event_sender.send_while(
        run_steps(lambda: spark.up(*scale), lambda: spark.crash("spark-worker"), lambda: time.sleep(5))
    )
    all_arrived_once(spark, event_sender)


async def test_a_standby_driver_takes_over(spark: ComposeMesh, sender: MakeSender) -> None:
    def leader() -> str:
        for container in spark.containers("enrich"):
            ready = run(
                "docker",
                "exec",
                container,
                "/opt/hifi/bin/python",
                "-I",
                "-S",
                "/opt/hifi/ready.py",
                check=False,
            )
            if '"state":"running"' in ready.stdout:
                return container
        return ""

    first_leader = leader()
    assert first_leader
    event_sender = sender(spark)
    await event_sender.send_while(
        run_steps(
            lambda: run("docker", "stop", "--time", "0", first_leader),
            lambda: until(lambda: leader() not in {"", first_leader}, "the standby leads"),
        )
    )
    all_arrived_once(spark, event_sender)
