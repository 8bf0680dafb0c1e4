"""hifi topics: the topics that a stream needs in Kafka."""

from collections.abc import Iterable
from enum import StrEnum
from typing import Annotated, Any

import typer

from hifi.kafka.topics import ControlTopics, DeclaredTopics, principal_topics
from hifi.runtime.errors import Misconfigured
from hifi_cli.display.console import console, print_json
from hifi_cli.display.tables import print_table, table
from hifi_cli.display.yaml import print_yaml
from hifi_cli.error_reporting import report_errors
from hifi_cli.mesh_state.target import stream_topics
from hifi_cli.options import ControlPlane, Stream
from hifi_infra.colours.colour_mesh import control_planes
from hifi_infra.colours.source_topics import SourceTopics
from hifi_infra.kafka.stream_setup import DEFAULT_PARTITIONS

app = typer.Typer(help="Print the topics that a stream needs in Kafka.")


class TopicFormat(StrEnum):
    """Output formats of `hifi topics show`."""

    TABLE = "table"
    KAFKA_TOPICS = "kafka-topics"
    STRIMZI = "strimzi"
    JSON = "json"


@app.callback()
def topics() -> None:
    """Print the topics that a stream needs in Kafka."""


@app.command()
@report_errors
def show(
    stream: Stream = None,
    control: ControlPlane = "",
    partitions: Annotated[
        int, typer.Option("--partitions", min=1, max=256, help="Partitions of each event topic.")
    ] = DEFAULT_PARTITIONS,
    replication: Annotated[int, typer.Option("--replication", min=1, help="Replicas of each partition.")] = 3,
    output: Annotated[TopicFormat, typer.Option("--format", help="Output format.")] = TopicFormat.TABLE,
    *,
    colours: Annotated[
        bool,
        typer.Option(
            "--colours", help="Print the topics of the control plane's Kafka of two colours instead."
        ),
    ] = False,
) -> None:
    """Print every topic with its partitions and settings, to create them outside of hifi.

    With HIFI_CREATE_TOPICS=false `hifi up` and the setup job create no topic: they
    stop with a message if one is missing or has other settings. The retry topics
    follow HIFI_TIERS.

    With two colours the Kafka of each needs what is printed without --control and
    --colours, and that of the control plane what --colours prints.

    Examples:
      hifi topics show
      hifi topics show --stream orders --partitions 12 --format kafka-topics | sh
      hifi topics show --control hifi-control --format strimzi | kubectl apply -f -
      hifi topics show --colours
    """
    if colours and control:
        raise Misconfigured(
            "--colours prints the topics of all control planes of two colours: leave --control out"
        )
    stream_name = stream or "hifi"
    declared_topics = stream_topics(stream_name)
    declared: list[DeclaredTopics] = (
        [*control_planes(stream_name), SourceTopics(declared_topics)]
        if colours
        else [declared_topics, ControlTopics(control) if control else principal_topics(stream_name)]
    )
    topics = settings(declared, partitions, replication)
    if output is TopicFormat.JSON:
        print_json(topics)
    elif output is TopicFormat.STRIMZI:
        print_yaml([_strimzi(topic) for topic in topics])
    elif output is TopicFormat.KAFKA_TOPICS:
        for topic in topics:
            configs = " ".join(f"--config {key}={value}" for key, value in topic["configs"].items())
            print(
                f'kafka-topics.sh --bootstrap-server "$KAFKA" --command-config "$CONFIG" --create --if-not-exists '
                f"--topic {topic['name']} --partitions {topic['partitions']} "
                f"--replication-factor {topic['replication']} {configs}"
            )
    else:
        rows = table("=topic", ">partitions", ">replicas", "settings")
        for topic in topics:
            configs = ", ".join(f"{key}={value}" for key, value in topic["configs"].items())
            rows.add_row(topic["name"], str(topic["partitions"]), str(topic["replication"]), configs)
        print_table(rows, console)


def settings(declared: Iterable[DeclaredTopics], partitions: int, replication: int) -> list[dict[str, Any]]:
    """Name, partitions, replication and configs of each topic."""
    min_isr = {"min.insync.replicas": str(max(1, replication - 1))}
    return [
        {
            "name": topic.name,
            "partitions": topic.partitions or partitions,
            "replication": replication,
            "configs": topic.configs() | min_isr,
        }
        for topics in declared
        for topic in topics.all()
    ]


def _strimzi(topic: dict[str, Any]) -> dict[str, Any]:
    return {
        "apiVersion": "kafka.strimzi.io/v1",
        "kind": "KafkaTopic",
        "metadata": {"name": topic["name"], "labels": {"strimzi.io/cluster": "CLUSTER"}},
        "spec": {
            "partitions": topic["partitions"],
            "replicas": topic["replication"],
            "config": topic["configs"],
        },
    }
