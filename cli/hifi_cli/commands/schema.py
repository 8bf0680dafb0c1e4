"""hifi schema: the Avro schema of a pipe's JSON Schema."""

from pathlib import Path
from typing import Annotated

import typer

from hifi.avro.derive import derive
from hifi.pipe.avro_data import described_data
from hifi.pipe.loader import load
from hifi.runtime.errors import Misconfigured
from hifi_cli.commands.check import print_problems
from hifi_cli.display.console import print_json
from hifi_cli.error_reporting import FAILED, report_errors

app = typer.Typer(no_args_is_help=True, help="Show the schemas of pipes.")

PipeFile = Annotated[
    Path, typer.Argument(metavar="PIPE.yaml", exists=True, dir_okay=False, help="File with the pipe.")
]


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
    loaded_pipes, problems = load(file.parent)
    problems_of_file = [problem for problem in problems if problem.file.name == file.name]
    if problems_of_file:
        print_problems(problems_of_file)
        raise typer.Exit(FAILED)
    pipe = next(
        (loaded_pipe.pipe for loaded_pipe in loaded_pipes if loaded_pipe.file.name == file.name), None
    )
    if pipe is None:
        raise Misconfigured(f"{file} is not the file of a pipe: its name ends with .yaml or .yml")
    schema = derive(described_data(pipe), pipe.pipe)
    print_json(schema)
