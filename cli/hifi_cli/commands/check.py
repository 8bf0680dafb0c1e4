"""hifi check: validate pipes without running them."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from hifi.check.pipe_check import check_folder
from hifi.control.capacity import MeshRating, overload
from hifi.pipe.loader import PipeProblem, load
from hifi.pipe.model import Pipe, Trigger
from hifi.pipe.normalize.left_out import notes_on_changes
from hifi.pipe.view import View
from hifi.runtime.errors import Misconfigured
from hifi_cli.display.console import console, errors, print_json, print_text
from hifi_cli.error_reporting import FAILED, report_errors
from hifi_cli.options import AsJson

Folder = Annotated[Path, typer.Argument(metavar="DIR", help="Folder of pipes, one YAML file for each pipe.")]
PipeFile = Annotated[
    Path, typer.Argument(metavar="PIPE.yaml", exists=True, dir_okay=False, help="File with the pipe.")
]
Quick = Annotated[
    bool,
    typer.Option("--quick", help="Skip the check of SQL expressions, which starts Spark (about 8 s)."),
]
RatingOption = Annotated[
    float,
    typer.Option(
        "--rating",
        envvar="HIFI_RATING",
        min=0,
        metavar="EV_PER_S",
        help="MeshRating of the mesh, with which the quotas of all pipes are compared.",
        show_default="unknown",
    ),
]
TriggerOption = Annotated[
    Trigger,
    typer.Option("--trigger", help="Spark trigger to check for. real-time does not support pandas UDFs."),
]


@report_errors
def check(
    folder: Folder,
    trigger: TriggerOption = "auto",
    rating: RatingOption = 0,
    *,
    quick: Quick = False,
    as_json: AsJson = False,
) -> None:
    """Validate pipes without running them. Each problem is reported with its file and line.

    Checks keys and values, JSON Schemas, lookup files and their columns, Python
    functions and SQL expressions, and with --rating whether the mesh carries the
    quotas of all pipes. Notes name what is valid but may surprise, such as
    arithmetic that can overflow. Exit status: 0 if the pipes are valid, 1 if there
    is a problem.

    Examples:
      hifi check examples/flights
      hifi check --quick pipes/       (for editors and commit hooks)
    """
    notes: list[PipeProblem] = []
    views: list[View] = []
    pipes, problems = check_folder(folder, trigger, sql=not quick, notes=notes, views=views)
    if not problems and (shortage := overload(pipes, MeshRating(rating))):
        problems = [PipeProblem(folder, 1, "source.quota.events", shortage)]
    if as_json:
        print_json(
            [
                {
                    "file": str(problem.file),
                    "line": problem.line,
                    "where": problem.where,
                    "message": problem.message,
                    "note": problem in notes,
                }
                for problem in [*problems, *notes]
            ]
        )
    elif problems:
        print_problems(problems)
    else:
        for problem in notes:
            print_text(f"note: {problem}")
        pipe_names = ", ".join(pipe.pipe for pipe in pipes)
        console.print(f"{len(pipes)} valid pipe(s): {pipe_names}", highlight=False)
        if views:
            pipe_names = ", ".join(view.view for view in views)
            console.print(f"{len(views)} valid view(s): {pipe_names}", highlight=False)
        for pipe in pipes:
            for advice in notes_on_changes(pipe):
                console.print(advice, highlight=False)
    if problems:
        raise typer.Exit(FAILED)


def print_problems(problems: list[PipeProblem]) -> None:
    """Print problems as `file:line: where: message`, and their number."""
    for problem in problems:
        print_text(str(problem))
    errors.print(f"[bold red]{len(problems)} problem(s)[/]", highlight=False)


def load_checked_pipes(
    folder: Path,
    trigger: Trigger,
    *,
    quick: bool,
    passed_folder: Path | None = None,
    function_folders: Sequence[Path] | None = None,
) -> list[Pipe]:
    """Return the pipes of a folder; if there are problems, print them and exit with status 1."""
    pipes, problems = check_folder(
        folder, trigger, sql=not quick, passed_folder=passed_folder, function_folders=function_folders
    )
    if problems:
        print_problems(problems)
        raise typer.Exit(FAILED)
    return pipes


def load_pipe(file: Path) -> Pipe:
    """Return the pipe of a file; if there are problems in it, print them and exit with status 1.

    Raises:
        Misconfigured: it is not the file of a pipe.
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
    return pipe
