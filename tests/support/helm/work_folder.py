"""A folder of the node that pods read and write: files to collect, and Iceberg tables."""

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tests.support.helm.namespace import create_volume
from tests.support.kubernetes.node import Node
from tests.support.kubernetes.places import NODE

CLAIM: Final = "work"
PATH: Final = f"{NODE}/work"
"""Of the folder, in the node and in pods."""
FILES: Final = f"{PATH}/files"
WAREHOUSE: Final = f"{PATH}/lake"
_READ: Final = """
import json, sys
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import NoSuchTableError
from sqlalchemy.exc import OperationalError
folder, table = sys.argv[1:]
catalog = SqlCatalog("hifi", uri=f"sqlite:///{folder}/catalog.db", warehouse=f"file://{folder}")
try:
    print(json.dumps(catalog.load_table(table).scan().to_arrow().to_pylist(), default=str))
except (NoSuchTableError, OperationalError):
    print("[]")
"""
"""Prints the rows of a table; there are none while there is no table."""


@dataclass(frozen=True, slots=True)
class WorkFolder:
    """The folder, as a claim in the namespace of releases."""

    node: Node

    @classmethod
    def create(cls, node: Node) -> "WorkFolder":
        """Create folder, volume and claim."""
        for name in ("work", "work/files", "work/lake"):
            (node.folder / name).mkdir()
            (node.folder / name).chmod(0o777)
        create_volume(node, CLAIM, "work", "1Gi", "ReadWriteMany")
        return cls(node)

    def write(self, name: str, text: str) -> None:
        """Put a file to collect into the folder, complete from the first moment."""
        files = self.node.folder / "work/files"
        hidden_file = files / f".{name}"
        hidden_file.write_text(text)
        hidden_file.chmod(0o644)
        hidden_file.rename(files / name)

    def rows(self, table: str) -> list[dict[str, Any]]:
        """The rows of a table."""
        if not Path(self.node.folder, "work/lake/catalog.db").exists():
            return []
        read = self.node.run(sys.executable, "-W", "ignore", "-c", _READ, WAREHOUSE, table)
        assert read.returncode == 0, read.stdout
        return list(json.loads(read.stdout.splitlines()[-1]))
