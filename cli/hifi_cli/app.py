"""The hifi command line: every command in its place."""

from typing import Annotated

import typer

from hifi import log
from hifi_cli import apply, check, dead, minutes, send, status, up
from hifi_cli.commands.version import version
from hifi_cli.demo import command as demo
from hifi_cli.rate import command as rate

app = typer.Typer(
    name="hifi",
    no_args_is_help=True,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_show_locals=False,
    help="""High-fidelity event streams: every event accepted with a 2xx reaches its destination, soon, once,
and hifi proves it.

[bold]Start here[/bold]

  hifi demo                        see a whole mesh at work, with a report at its end

  hifi up --pipes examples/hello   run a mesh on this machine until Ctrl-C

  hifi send hello events.ndjson    send events to a pipe

  hifi status                      look at what runs""",
)


@app.callback()
def root(
    *,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Show logs, such as Kafka's, on stderr.")
    ] = False,
) -> None:
    """Options of every command."""
    log.configure("cli", "hifi", level="info" if verbose else "critical")


app.command(rich_help_panel="Run")(demo.demo)
app.command(rich_help_panel="Run")(rate.rate)
app.command(rich_help_panel="Run")(up.up)
app.command(rich_help_panel="Run")(up.down)
app.command(rich_help_panel="Run")(status.status)
app.command(rich_help_panel="What became of events")(minutes.top)
app.command(rich_help_panel="What became of events")(minutes.minutes)
app.command(rich_help_panel="What became of events")(minutes.lost)
app.command(rich_help_panel="Pipes and events")(check.check)
app.command(rich_help_panel="Pipes and events")(apply.apply)
app.command(rich_help_panel="Pipes and events")(apply.pipes)
app.command(rich_help_panel="Pipes and events")(send.send)
app.add_typer(dead.app, name="dead", rich_help_panel="Pipes and events")
app.command()(version)
