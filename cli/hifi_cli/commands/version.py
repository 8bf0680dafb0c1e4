"""hifi version."""

import platform
from importlib import metadata

from hifi_cli.display.console import console, print_json
from hifi_cli.options import AsJson

_PARTS = ("hifi-cli", "hifi-libs", "pyspark", "aiokafka")


def version(*, as_json: AsJson = False) -> None:
    """Print the versions of hifi and of what matters below it."""
    versions = {"python": platform.python_version()} | {part: metadata.version(part) for part in _PARTS}
    if as_json:
        print_json(versions)
        return
    for name, number in versions.items():
        console.print(f"{name} {number}", highlight=False)
