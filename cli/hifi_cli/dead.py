"""hifi dead: look at dead letters, and let them go again."""

import typer

app = typer.Typer(
    no_args_is_help=True, help="Events that no node could pass on: list them, look into one, replay them."
)
