"""hifi pipes: list the published pipes."""

from rich.markup import escape

from hifi.pipe.registry import read_registry
from hifi_cli.display.console import console, print_json
from hifi_cli.display.tables import print_table, table
from hifi_cli.error_reporting import report_errors
from hifi_cli.mesh_state.target import kafka_target
from hifi_cli.options import DEFAULT_DATA, AsJson, Data, Kafka, Stream

NO_PIPES = "No pipes are published. Publish some with `hifi apply DIR`."


@report_errors
async def pipes(
    data: Data = DEFAULT_DATA, kafka: Kafka = None, stream: Stream = None, *, as_json: AsJson = False
) -> None:
    """List the published pipes.

    Examples:
      hifi pipes
      hifi pipes --json | jq '.[].pipe.destinations[].url'
    """
    target = kafka_target(data, kafka, stream)
    published = await read_registry(target.kafka, target.topics)
    found = [published.pipes[name] for name in sorted(published.pipes)]
    if as_json:
        print_json(
            [
                {
                    "revision": one.revision,
                    "pipe": one.pipe.model_dump(mode="json", by_alias=True, exclude_defaults=True),
                }
                for one in found
            ]
        )
        return
    if not found:
        console.print(NO_PIPES)
        return
    rows = table("pipe", ">revision", "destinations", ">SLO p95\ns", "description")
    for one in found:
        names = ", ".join(destination.name for destination in one.pipe.destinations)
        rows.add_row(
            one.pipe.pipe, str(one.revision), names, f"{one.pipe.slo.p95:g}", escape(one.pipe.description)
        )
    print_table(rows, console)
