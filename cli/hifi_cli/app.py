"""The command line `hifi`: all its commands."""

from typing import Annotated

import typer

from hifi.runtime import log
from hifi_cli.commands import (
    acl,
    apply,
    audit,
    backup,
    check,
    colour,
    dead,
    demo,
    deploy,
    destinations,
    diff,
    down,
    event,
    keys,
    lost,
    minutes,
    pipes,
    principal,
    rate,
    restore,
    rollout,
    schema,
    send,
    status,
    top,
    topics,
    up,
)
from hifi_cli.commands.console import console_link
from hifi_cli.commands.skew import skew
from hifi_cli.commands.sources import sources
from hifi_cli.commands.version import print_version, version

app = typer.Typer(
    name="hifi",
    no_args_is_help=True,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_show_locals=False,
    help="""Run and inspect hifi meshes: event streams that deliver every accepted event and prove it.

[bold]Start here[/bold]
  hifi demo                        run a mesh on real data and verify it
  hifi up --pipes examples/hello   run a mesh on this machine until Ctrl-C
  hifi send hello events.ndjson    send events to a pipe
  hifi status                      show services, backlog and pipes""",
)


@app.callback()
def root(
    *,
    verbose: Annotated[
        bool,
        typer.Option("--verbose", "-v", help="Print logs, including those of the Kafka client, on stderr."),
    ] = False,
    _version: Annotated[
        bool,
        typer.Option("--version", callback=print_version, is_eager=True, help="Print the version of hifi."),
    ] = False,
) -> None:
    """Apply the options that all commands share."""
    log.configure("cli", "hifi", level="info" if verbose else "critical")


_RUN, _INSPECT, _PIPES, _KAFKA = "Run a mesh", "Inspect events", "Pipes and events", "Kafka"
app.command(rich_help_panel=_RUN)(demo.demo)
app.command(rich_help_panel=_RUN)(rate.rate)
app.command(rich_help_panel=_RUN)(up.up)
app.command(rich_help_panel=_RUN)(down.down)
app.command(rich_help_panel=_RUN)(status.status)
app.command("console", rich_help_panel=_RUN)(console_link)
app.add_typer(colour.app, name="colour", rich_help_panel=_RUN)
app.command(rich_help_panel=_INSPECT)(top.top)
app.command(rich_help_panel=_INSPECT)(minutes.minutes)
app.command(rich_help_panel=_INSPECT)(lost.lost)
app.command(rich_help_panel=_INSPECT)(event.event)
app.command(rich_help_panel=_INSPECT)(skew)
app.command(rich_help_panel=_INSPECT)(sources)
app.add_typer(dead.app, name="dead", rich_help_panel=_INSPECT)
app.command(rich_help_panel=_PIPES)(check.check)
app.command(rich_help_panel=_PIPES)(diff.diff)
app.command(rich_help_panel=_PIPES)(apply.apply)
app.add_typer(rollout.app, name="rollout", rich_help_panel=_PIPES)
app.add_typer(destinations.app, name="destinations", rich_help_panel=_PIPES)
app.add_typer(pipes.app, name="pipes", rich_help_panel=_PIPES)
app.add_typer(schema.app, name="schema", rich_help_panel=_PIPES)
app.command(rich_help_panel=_PIPES)(send.send)
app.add_typer(deploy.app, name="deploy", rich_help_panel=_PIPES)
app.add_typer(principal.app, name="principal", rich_help_panel=_PIPES)
app.add_typer(keys.app, name="keys", rich_help_panel=_PIPES)
app.command(rich_help_panel=_PIPES)(audit.audit)
app.command(rich_help_panel=_PIPES)(backup.backup)
app.command(rich_help_panel=_PIPES)(restore.restore)
app.add_typer(acl.app, name="acl", rich_help_panel=_KAFKA)
app.add_typer(topics.app, name="topics", rich_help_panel=_KAFKA)
app.command()(version)
