"""hifi schema: the Avro schema of a pipe's JSON Schema."""

import typer

from hifi.avro.derive import derive
from hifi.pipe.avro_data import described_data
from hifi_cli.commands.check import PipeFile, load_pipe
from hifi_cli.display.console import print_json
from hifi_cli.error_reporting import report_errors

app = typer.Typer(no_args_is_help=True, help="Show the schemas of pipes.")


@app.callback()
def schema() -> None:
    """Show the schemas of pipes."""


@app.command()
@report_errors
def avro(file: PipeFile) -> None:
    """Print the Avro schema that follows from a pipe's JSON Schema.

    It describes the data as sent, which `normalize.schema` checks. A Kafka destination
    with `format: avro` uses it unless it declares a schema.

    Example:
      hifi schema avro pipes/orders.yaml
    """
    pipe = load_pipe(file)
    schema = derive(described_data(pipe), pipe.pipe)
    print_json(schema)
