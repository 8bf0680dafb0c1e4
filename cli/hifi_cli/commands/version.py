"""hifi version: versions of hifi and its most important dependencies."""

import contextlib
import platform
from importlib import metadata
from typing import Final

import typer

from hifi_cli.display.console import console, print_json
from hifi_cli.options import AsJson

_PARTS: Final = ("hifi-cli", "hifi-libs", "pyspark", "aiokafka")


def print_version(is_asked: bool) -> None:
    """The option `--version` of `hifi`: print its version and exit."""
    if is_asked:
        console.print(f"hifi {metadata.version('hifi-cli')}", highlight=False)
        raise typer.Exit


def version(*, as_json: AsJson = False) -> None:
    """Print the versions of hifi, Python, Spark and aiokafka."""
    versions = {"python": platform.python_version()}
    for package in _PARTS:
        with contextlib.suppress(metadata.PackageNotFoundError):  # without a mesh there is no Spark
            versions[package] = metadata.version(package)
    if as_json:
        print_json(versions)
        return
    for name, number in versions.items():
        console.print(f"{name} {number}", highlight=False)
