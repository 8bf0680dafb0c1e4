"""hifi check: validate pipes without running them."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from hifi.pipe.loader import PipeProblem
from hifi.pipe.model import Pipe, Trigger
from hifi.pipe_check import check_folder
from hifi_cli.display.console import console, errors, print_json
from hifi_cli.error_reporting import FAILED, reported
from hifi_cli.options import AsJson

Folder = Annotated[Path, typer.Argument(metavar="DIR", help="Folder with one YAML file for each pipe.")]
Quick = Annotated[
    bool,
    typer.Option("--quick", help="Leave out the check of SQL expressions, which starts Spark (about 8 s)."),
]
TriggerOption = Annotated[
    Trigger,
    typer.Option("--trigger", help="Check for this trigger of enrich: real-time allows no pandas UDF."),
]


@reported
def check(
    folder: Folder, trigger: TriggerOption = "micro-batch", *, quick: Quick = False, as_json: AsJson = False
) -> None:
    """Validate pipes without running them; each problem is told with its file and line.

    Checked are keys and values, JSON Schemas, lookup files and their columns, Python functions, SQL expressions.
    Exit status 0 when all is well, 1 when not.

      hifi check examples/flights
      hifi check --quick pipes/       (in an editor or a commit hook)
    """
    pipes, problems = check_folder(folder, trigger, sql=not quick)
    if as_json:
        print_json(
            [
                {"file": str(one.file), "line": one.line, "where": one.where, "message": one.message}
                for one in problems
            ]
        )
    elif problems:
        tell(problems)
    else:
        names = ", ".join(pipe.pipe for pipe in pipes)
        console.print(f"{len(pipes)} pipe(s) are well: {names}", highlight=False)
    if problems:
        raise typer.Exit(FAILED)


def tell(problems: list[PipeProblem]) -> None:
    """Print problems as `file:line: where: message`, and how many there are."""
    for problem in problems:
        print(problem)
    errors.print(f"[bold red]{len(problems)} problem(s)[/]", highlight=False)


def checked(
    folder: Path,
    trigger: Trigger,
    *,
    quick: bool,
    seen: Path | None = None,
    places: Sequence[Path] | None = None,
) -> list[Pipe]:
    """The pipes of a folder, or an end with exit status 1 after telling what is wrong with them."""
    pipes, problems = check_folder(folder, trigger, sql=not quick, passed=seen, function_folders=places)
    if problems:
        tell(problems)
        raise typer.Exit(FAILED)
    return pipes
