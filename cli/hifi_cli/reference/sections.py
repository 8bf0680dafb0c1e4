"""Generated sections of hand-written pages: the text between two comments is replaced by a table or an example."""

import ast
import importlib
import re
import textwrap
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from hifi.runtime.errors import Misconfigured
from hifi_cli.reference import chart, pages, value_types
from hifi_cli.reference.packages import ROOT, folders_list, layers, packages, services_table
from hifi_cli.reference.topic_tables import control_topics_table, stream_topics_table

SECTIONS: Final[Mapping[str, Callable[[], str]]] = {
    "services": lambda: services_table(packages()),
    "folders": lambda: folders_list(packages()),
    "layers": layers,
    "sqlite-destination": lambda: _method("sqlite_destination.py", "SqliteWriter", "_write"),
    "sqlite-source": lambda: _method("sqlite_source.py", "SqliteRows", "read"),
    "types-of-changes": lambda: _table("hifi_debezium.type_table"),
    "types-of-values": value_types.markdown,
    "values-of-the-chart": chart.values_list,
    "keys-of-a-view": pages.view_keys,
    "values-of-columns": lambda: _table("hifi_postgres.value_table"),
    "topics-of-a-stream": stream_topics_table,
    "topics-of-a-control-plane": control_topics_table,
}
"""Name of a section to what generates it."""
PAGES: Final = (
    "architecture.md",
    "connectors.md",
    "destinations.md",
    "kubernetes.md",
    "sources.md",
    "topics.md",
    "values.md",
    "views.md",
)
"""The pages in `docs/` that have such sections."""
_SECTION: Final = re.compile(
    r"(?P<begin><!-- generated: (?P<name>\S+) -->\n).*?(?P<end><!-- end -->)", re.DOTALL
)


def _table(module: str) -> str:
    """Show a table of a connector, which the command line does not import."""
    markdown: str = importlib.import_module(module).markdown()
    return markdown


def _method(file: str, class_name: str, method_name: str) -> str:
    """Show a method of the example of a connector in Markdown."""
    source = (ROOT / "examples/connectors/sqlite" / file).read_text("utf-8")
    [declared_class] = (
        node for node in ast.parse(source).body if isinstance(node, ast.ClassDef) and node.name == class_name
    )
    [method] = (
        node
        for node in declared_class.body
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name == method_name
    )
    lines = source.splitlines(keepends=True)[method.lineno - 1 : method.end_lineno]
    return f"```python\n{textwrap.dedent(''.join(lines))}```"


def pages_with_sections(docs: Path) -> dict[str, str]:
    """Return the file name and the text of each such page, with its sections generated anew.

    Raises:
        Misconfigured: a page names a section that nothing generates.
    """
    return {name: _SECTION.sub(_generate, (docs / name).read_text("utf-8")) for name in PAGES}


def _generate(section: re.Match[str]) -> str:
    generate = SECTIONS.get(section["name"])
    if generate is None:
        raise Misconfigured(f"no section is called {section['name']!r}; there are {', '.join(SECTIONS)}")
    return f"{section['begin']}\n{generate().strip()}\n\n{section['end']}"
