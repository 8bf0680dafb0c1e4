"""hifi version: versions of hifi and its most important dependencies."""

import platform
from importlib import metadata
from typing import Final

from hifi_cli.display.console import console, print_json
from hifi_cli.options import AsJson

_PARTS: Final = ("hifi-cli", "hifi-libs", "pyspark", "aiokafka")


def version(*, as_json: AsJson = False) -> None:
    """Print the versions of hifi, Python, Spark and aiokafka."""
    versions = {"python": platform.python_version()} | {part: metadata.version(part) for part in _PARTS}
    if as_json:
        print_json(versions)
        return
    for name, number in versions.items():
        console.print(f"{name} {number}", highlight=False)
