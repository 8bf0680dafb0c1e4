"""hifi diff: what `hifi apply` would change."""

import asyncio
from typing import Annotated

import typer

from hifi.control.capacity import MeshRating, overload
from hifi.control.pipe_yaml import difference
from hifi_cli.commands.apply import DeleteMissing, declared_pipes, wanted_pipes
from hifi_cli.commands.check import Folder, Quick, RatingOption, load_checked_pipes
from hifi_cli.display.console import console, errors, print_json
from hifi_cli.error_reporting import FAILED, report_errors
from hifi_cli.mesh_state.manage_api import ManageApi
from hifi_cli.mesh_state.target import kafka_target
from hifi_cli.options import DEFAULT_DATA, AsJson, Data, Kafka, ManageTokenFile, ManageUrl, Stream


@report_errors
def diff(
    folder: Folder,
    data: Data = DEFAULT_DATA,
    kafka: Kafka = None,
    stream: Stream = None,
    manage: ManageUrl = None,
    manage_token_file: ManageTokenFile = None,
    *,
    delete_missing: DeleteMissing = False,
    exit_code: Annotated[
        bool, typer.Option("--exit-code", help="Exit with status 1 if there is a difference, or no capacity.")
    ] = False,
    rating: RatingOption = 0,
    quick: Quick = False,
    as_json: AsJson = False,
) -> None:
    """Check the pipes of a folder and show what `hifi apply` would change, without changing it.

    With --rating it also says if the mesh does not carry the quotas of all pipes
    together.

    Examples:
      hifi diff pipes/
      hifi diff pipes/ --manage https://manage.example.com --exit-code
    """
    pipes = load_checked_pipes(folder, "micro-batch", quick=quick)
    if manage:
        api = ManageApi(manage, manage_token_file)
        before = {name: api.pipe(name).pipe for name in {*api.names(), *(pipe.pipe for pipe in pipes)}}
    else:
        before, _ = asyncio.run(declared_pipes(kafka_target(data, kafka, stream)))
    after = wanted_pipes(pipes, before, delete_missing=delete_missing)
    differences = {
        name: difference(before.get(name), pipe, f"{name} (declared)", f"{name} (file)")
        for name, pipe in sorted(after.items())
        if before.get(name) != pipe
    }
    if as_json:
        print_json(differences)
    elif not differences:
        console.print("Nothing differs.")
    else:
        for text in differences.values():
            console.print(text, highlight=False, markup=False, soft_wrap=True, end="")
    if shortage := overload(
        [pipe for pipe in (before | after).values() if pipe is not None], MeshRating(rating)
    ):
        errors.print(f"no capacity: {shortage}", highlight=False)
    if (differences or shortage) and exit_code:
        raise typer.Exit(FAILED)
