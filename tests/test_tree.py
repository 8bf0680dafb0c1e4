"""The tree stays readable: small folders, short files, and one meaning for each class name."""

import ast
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).parents[1]
MOST_MODULES = 16
MOST_LINES = 400
FILES = sorted(
    file
    for folder in ("libs", "services", "infra", "cli", "bench")
    for file in (ROOT / folder).rglob("*.py")
    if not {"build", ".venv"} & set(file.parts)
)
PRODUCT = [file for file in FILES if file.relative_to(ROOT).parts[0] != "bench"]


def test_a_folder_has_few_modules() -> None:
    modules: defaultdict[Path, list[str]] = defaultdict(list)
    for file in PRODUCT:
        if file.name != "__init__.py":
            modules[file.parent.relative_to(ROOT)].append(file.name)
    assert {str(folder): len(names) for folder, names in modules.items() if len(names) > MOST_MODULES} == {}


def test_a_file_is_short() -> None:
    lines = {str(file.relative_to(ROOT)): len(file.read_text("utf-8").splitlines()) for file in FILES}
    assert {file: count for file, count in lines.items() if count > MOST_LINES} == {}


def test_a_class_name_means_one_thing() -> None:
    places: defaultdict[str, list[str]] = defaultdict(list)
    for file in PRODUCT:
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            if isinstance(node, ast.ClassDef):
                places[node.name].append(str(file.relative_to(ROOT)))
    assert {name: files for name, files in places.items() if len(files) > 1} == {}
