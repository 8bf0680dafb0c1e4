"""The command line `hifi`: all its commands, each of which is imported only where it is needed."""

from importlib import import_module
from typing import Annotated, Final, NamedTuple

import typer

from hifi.runtime import log
from hifi_cli.commands.version import print_version


class _Command(NamedTuple):
    """The place of a command, or of a group of commands, in the help and in the code."""

    panel: str | None
    module: str
    """Below `hifi_cli.commands`."""
    attribute: str
    """The function of a command, or the Typer application of a group."""


_RUN, _INSPECT, _PIPES, _KAFKA = "Run a mesh", "Inspect events", "Pipes and events", "Kafka"
COMMANDS: Final = {
    "demo": _Command(_RUN, "demo", "demo"),
    "rate": _Command(_RUN, "rate", "rate"),
    "up": _Command(_RUN, "up", "up"),
    "down": _Command(_RUN, "down", "down"),
    "status": _Command(_RUN, "status", "status"),
    "console": _Command(_RUN, "console", "console_link"),
    "colour": _Command(_RUN, "colour", "app"),
    "top": _Command(_INSPECT, "top", "top"),
    "minutes": _Command(_INSPECT, "minutes", "minutes"),
    "lost": _Command(_INSPECT, "lost", "lost"),
    "event": _Command(_INSPECT, "event", "event"),
    "watermark": _Command(_INSPECT, "watermark", "watermark"),
    "wait": _Command(_INSPECT, "wait", "wait"),
    "query": _Command(_INSPECT, "query", "query"),
    "view": _Command(_INSPECT, "view", "view"),
    "skew": _Command(_INSPECT, "skew", "skew"),
    "step": _Command(_INSPECT, "step", "app"),
    "sources": _Command(_INSPECT, "sources", "sources"),
    "usage": _Command(_INSPECT, "usage", "usage"),
    "report": _Command(_INSPECT, "report", "app"),
    "dead": _Command(_INSPECT, "dead", "app"),
    "check": _Command(_PIPES, "check", "check"),
    "diff": _Command(_PIPES, "diff", "diff"),
    "apply": _Command(_PIPES, "apply", "apply"),
    "rollout": _Command(_PIPES, "rollout", "app"),
    "destinations": _Command(_PIPES, "destinations", "app"),
    "pipes": _Command(_PIPES, "pipes", "app"),
    "schema": _Command(_PIPES, "schema", "app"),
    "send": _Command(_PIPES, "send", "send"),
    "deploy": _Command(_PIPES, "deploy", "app"),
    "principal": _Command(_PIPES, "principal", "app"),
    "keys": _Command(_PIPES, "keys", "app"),
    "audit": _Command(_PIPES, "audit", "audit"),
    "backup": _Command(_PIPES, "backup", "backup"),
    "restore": _Command(_PIPES, "restore", "restore"),
    "acl": _Command(_KAFKA, "acl", "app"),
    "topics": _Command(_KAFKA, "topics", "app"),
    "upgrade": _Command(_KAFKA, "upgrade", "app"),
    "version": _Command(None, "version", "version"),
}


def command_line(name: str | None = None) -> typer.Typer:
    """The command line.

    Args:
        name: of its only command, which saves the import of the others; None: it has all commands.
    """
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
    app.callback()(root)
    for command_name, command in COMMANDS.items() if name is None else [(name, COMMANDS[name])]:
        implementation = getattr(import_module(f"hifi_cli.commands.{command.module}"), command.attribute)
        if isinstance(implementation, typer.Typer):
            app.add_typer(implementation, name=command_name, rich_help_panel=command.panel)
        else:
            app.command(command_name, rich_help_panel=command.panel)(implementation)
    return app


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
