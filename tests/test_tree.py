"""Each class name has one meaning in the tree."""

import ast
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).parents[1]
FILES = sorted(
    file
    for folder in ("libs", "connectors", "services", "infra", "cli")
    for file in (ROOT / folder).rglob("*.py")
    if not {"build", ".venv"} & set(file.parts)
)


def test_a_class_name_means_one_thing() -> None:
    places: defaultdict[str, list[str]] = defaultdict(list)
    for file in FILES:
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            if isinstance(node, ast.ClassDef):
                places[node.name].append(str(file.relative_to(ROOT)))
    assert {name: files for name, files in places.items() if len(files) > 1} == {}
