"""Prints YAML documents on standard output."""

import sys
from collections.abc import Sequence
from typing import Any

from ruamel.yaml import YAML


def print_yaml(documents: Sequence[Any]) -> None:
    """Print several YAML documents."""
    writer = YAML()
    writer.indent(mapping=2, sequence=4, offset=2)
    writer.explicit_start = True
    writer.dump_all(documents, sys.stdout)
