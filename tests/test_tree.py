"""Class names have one meaning, what is called pure is pure, Kafka's clients are made in one module, tests mirror the
code, their helpers have a package, findings that stay have a reason, and a devcontainer has the contributors' Python.
"""

import ast
import json
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final

import pytest
from tests.support.purity import Purity, module_sources

ROOT = Path(__file__).parents[1]
FILES = sorted(
    file
    for folder in ("libs", "connectors", "services", "infra", "cli")
    for file in (ROOT / folder).rglob("*.py")
    if not {"build", ".venv"} & set(file.parts)
)


def _python_files() -> list[Path]:
    """The product, its tests, and scripts."""
    folders = ("bench", "examples", "tests", "requirements")
    files = [
        *FILES,
        *(file for folder in folders for file in (ROOT / folder).rglob("*.py") if "build" not in file.parts),
    ]
    assert len(files) > 800, "the files are not found"
    return files


def test_a_class_name_means_one_thing() -> None:
    lines_by_class: defaultdict[str, list[str]] = defaultdict(list)
    for file in FILES:
        for match in re.finditer(r"^ *class (\w+)\b.*", file.read_text("utf-8"), re.MULTILINE):
            lines_by_class[match[1]].append(f"{file.relative_to(ROOT)}: {match[0]}")
    assert len(lines_by_class) > 1000, "the classes are not found"
    assert {name: lines for name, lines in lines_by_class.items() if len(lines) > 1} == {}


_VAGUE_NAMES: Final = frozenset({"found", "known", "one", "own", "wanted"})


def _vague_names(tree: ast.AST) -> list[str]:
    """Parameters, and variables and fields that functions assign, with names that do not say what they hold."""
    functions = (
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
    )
    names_by_line = set()
    for node in {part for function in functions for part in ast.walk(function)}:
        if isinstance(node, ast.arg):
            names_by_line.add((node.lineno, node.arg))
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names_by_line.add((node.lineno, node.id))
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            names_by_line.add((node.lineno, node.attr))
    return [f"{number}: {name}" for number, name in sorted(names_by_line) if name in _VAGUE_NAMES]


@pytest.mark.slow
def test_variables_have_the_noun_of_what_they_hold() -> None:
    vague_names = {
        str(file.relative_to(ROOT)): lines
        for file in _python_files()
        if (lines := _vague_names(ast.parse(file.read_text("utf-8"))))
    }
    assert vague_names == {}, "name each after the thing that it holds: `row`, `first_offset`, `cached_count`"


@pytest.mark.parametrize(
    "source",
    [
        "def f():\n    found = 1",
        "async def f(known): pass",
        "def f():\n    for one in (): pass",
        "def f():\n    own, other = 1, 2",
        "def f():\n    return [wanted for wanted in ()]",
        "def f():\n    return lambda found: 1",
        "class C:\n    def f(self):\n        self.known = 1",
    ],
)
def test_the_check_of_names_finds(source: str) -> None:
    assert len(_vague_names(ast.parse(source))) == 1


@pytest.fixture(scope="module")
def purity() -> Purity:
    return Purity(module_sources(ROOT, FILES))


@pytest.mark.slow
def test_what_is_called_pure_is_pure(purity: Purity) -> None:
    pure = purity.pure_modules()
    assert len(pure) > 200, "the docstrings are not found"
    assert {name: sorted(impurities) for name in pure if (impurities := purity.own_impurities(name))} == {}


@pytest.mark.slow
def test_what_pure_modules_use_is_pure(purity: Purity) -> None:
    assert {
        name: reached for name in purity.pure_modules() if (reached := purity.reached_impurities(name))
    } == {}


@pytest.mark.slow
def test_functions_and_classes_that_are_called_pure_are_pure(purity: Purity) -> None:
    definitions = list(purity.pure_definitions())
    assert len(definitions) > 3, "the docstrings are not found"
    assert {
        f"{module}.{node.name}": impurities
        for module, node in definitions
        if (impurities := purity.own_impurities(module, node) or purity.reached_impurities(module, node))
    } == {}


@pytest.mark.parametrize(
    "source",
    [
        "import asyncio",
        "from aiokafka import ConsumerRecord",
        "from hifi.runtime.clock import now_us",
        "from hifi.runtime import log",
        "async def f(): pass",
        "def f(path): return path.read_text()",
        "from datetime import datetime\nNOW = datetime.now()",
        "def f():\n    import subprocess",
    ],
)
def test_the_check_of_purity_finds(source: str) -> None:
    assert Purity({"a": source}).own_impurities("a")


_IMPURE_MODULE: Final = """
import time
from dataclasses import dataclass

def now(): return time.time()
def later(): return now() + 1
LATER = later

@dataclass
class Point:
    x: int

class Clock:
    def read(self): return later()
    def read_twice(self): return self.read() - self.read()

@dataclass
class Watch:
    clock: Clock
    owner: str
"""


@pytest.mark.parametrize(
    "source",
    [
        "from b import now\nNOW = now()",
        "from b import later\ndef f(): return later()",
        "import b\ndef f(): return b.later()",
        "from b import LATER\ndef f(clock=LATER): return clock()",
        "from c import passed_on\ndef f(): return passed_on()",
        "def f():\n    from b import Clock\n    return Clock()",
        "from b import Clock\nclass C(Clock): pass",
        "from b import Clock\ndef f(clock: Clock): return clock.read()",
        "from b import Clock\ndef f(clock: Clock): return clock.read_twice()",
        "from b import Watch\ndef f(watch: Watch): return watch.clock.read()",
    ],
)
def test_the_check_of_purity_follows_imports(source: str) -> None:
    sources = {"a": source, "b": _IMPURE_MODULE, "c": "from b import later as passed_on"}
    assert Purity(sources).reached_impurities("a")


@pytest.mark.parametrize(
    "source",
    [
        "from b import Point\ndef f(): return Point(1)",
        "from b import Clock\ndef f(clock: Clock): return {clock: 1}",
        "from b import Watch\ndef f(watch: Watch): return watch.owner",
    ],
)
def test_a_value_may_stand_beside_what_is_impure(source: str) -> None:
    assert Purity({"a": source, "b": _IMPURE_MODULE}).reached_impurities("a") == {}


_CLIENT_MODULE: Final = ROOT / "libs/hifi/kafka/clients.py"
_CLIENTS: Final = frozenset(
    {
        "AIOKafkaAdminClient",
        "AIOKafkaConsumer",
        "AIOKafkaProducer",
        "AdaptiveConsumer",
        "CooperativeConsumer",
        "RecordConsumer",
    }
)


def _client_uses(tree: ast.AST) -> Iterator[str]:
    """Uses of Kafka's client classes, also under other names, that are no types, base classes or keys of a table."""
    clients = set(_CLIENTS)
    ignored: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            clients |= {alias.asname for alias in node.names if alias.asname and alias.name in _CLIENTS}
        harmless: list[ast.expr | None] = []
        if isinstance(node, ast.arg | ast.AnnAssign):
            harmless = [node.annotation]
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            harmless = [node.returns]
        elif isinstance(node, ast.ClassDef):
            harmless = list(node.bases)
        elif isinstance(node, ast.Dict):
            harmless = list(node.keys)
        ignored |= {id(name) for expression in harmless if expression for name in ast.walk(expression)}
    for node in ast.walk(tree):
        name = node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", None)
        if isinstance(node, ast.Attribute | ast.Name) and name in clients and id(node) not in ignored:
            yield f"{node.lineno}: {ast.unparse(node)}"


def test_kafka_clients_are_made_in_one_module() -> None:
    uses = {
        file: lines
        for file in FILES
        if "aiokafka_cooperative" not in file.parts
        and any(name in (text := file.read_text("utf-8")) for name in _CLIENTS)
        and (lines := list(_client_uses(ast.parse(text))))
    }
    assert len(uses.pop(_CLIENT_MODULE)) == len(_CLIENTS), (
        "two make producers, none an AIOKafkaConsumer itself"
    )
    assert uses == {}, "use hifi.kafka.clients"


@pytest.mark.parametrize(
    "source",
    [
        "from aiokafka import AIOKafkaProducer\nproducer = AIOKafkaProducer(acks=1)",
        "from aiokafka import AIOKafkaConsumer as Reader\ndef f(): return Reader('topic')",
        "import aiokafka\nclient = aiokafka.AIOKafkaConsumer()",
        "import aiokafka.admin as a\nasync def f():\n    async with a.AIOKafkaAdminClient() as admin: pass",
        "from functools import partial\nfrom aiokafka import AIOKafkaProducer\nnew = partial(AIOKafkaProducer)",
    ],
)
def test_the_check_of_clients_finds(source: str) -> None:
    assert list(_client_uses(ast.parse(source)))


_TESTS_BY_CODE: Final = {
    **{
        folder: ROOT / "tests" / group / folder.parent.name
        for group in ("connectors", "services")
        for folder in sorted((ROOT / group).glob("*/hifi_*/"))
    },
    ROOT / "libs/hifi": ROOT / "tests/libs",
    ROOT / "cli/hifi_cli": ROOT / "tests/cli",
    ROOT / "infra/hifi_infra": ROOT / "tests/infra",
}
"""Folder of a package to the folder of its tests."""


def _misplaced_tests(package: str, modules: Iterable[Path], tests: Mapping[Path, str]) -> dict[Path, Path]:
    """Test modules that import the only module of their name, to the folder that mirrors its folder, if it is another.

    A test that is named after a folder may be about all of it.

    Args:
        package: its name.
        modules: files of its modules, relative to its folder.
        tests: file, relative to the folder of the package's tests, to its text.
    """
    folders_by_name: defaultdict[str, set[Path]] = defaultdict(set)
    for module in modules:
        folders_by_name[module.stem].add(module.parent)
    for folder in {folder for folders in folders_by_name.values() for folder in folders}:
        folders_by_name.pop(folder.name, None)
    misplaced: dict[Path, Path] = {}
    for test, text in tests.items():
        name = test.stem.removeprefix("test_")
        match list(folders_by_name[name]):
            case [folder] if folder != test.parent:
                dotted = re.escape(".".join((package, *folder.parts)))
                if re.search(rf"^from {dotted}(?: import .*|\.){name}\b", text, re.MULTILINE):
                    misplaced[test] = folder
    return misplaced


def test_tests_of_a_module_lie_in_the_folder_that_mirrors_its_folder() -> None:
    assert len(_TESTS_BY_CODE) > 20, "the packages are not found"
    assert {
        package.name: misplaced
        for package, tests in _TESTS_BY_CODE.items()
        if (
            misplaced := _misplaced_tests(
                package.name,
                [file.relative_to(package) for file in package.rglob("*.py")],
                {file.relative_to(tests): file.read_text("utf-8") for file in tests.rglob("test_*.py")},
            )
        )
    } == {}


def test_the_check_of_places_finds() -> None:
    modules = [Path("web/api.py"), Path("a/row.py"), Path("b/row.py")]
    imports = "from hifi_x.web.api import A\nfrom hifi_x.a.row import Row"
    tests = dict.fromkeys(map(Path, ("test_api.py", "test_row.py", "web/test_api.py")), imports)
    assert _misplaced_tests("hifi_x", modules, tests) == {Path("test_api.py"): Path("web")}
    as_name = {Path("a/test_api.py"): "from hifi_x.web import api"}
    assert _misplaced_tests("hifi_x", modules, as_name) == {Path("a/test_api.py"): Path("web")}


def test_no_helper_module_lies_loose_beside_a_conftest() -> None:
    tests = ROOT / "tests"
    loose = [
        str(file.relative_to(tests))
        for file in sorted(tests.rglob("*.py"))
        if file.name != "conftest.py"
        and not file.name.startswith("test_")
        and not _is_in_package(file, tests)
    ]
    assert loose == [], "helpers of tests belong into tests/support"


def _is_in_package(file: Path, tests: Path) -> bool:
    folders = file.relative_to(tests).parents[:-1]
    return any((tests / folder / "__init__.py").exists() for folder in folders)


_SUPPRESSED: Final = re.compile(
    r"# (?:ruff: )?noqa(?:: *$| *$|: [A-Z0-9, ]*\bS\d{3}\b[A-Z0-9, ]*(?: - (?P<reason>.+))?$)"
)
_IGNORED: Final = re.compile(r"\"S(?:\d+)?\"")


def _unexplained(lines: list[str]) -> list[int]:
    """Numbers of lines of Python that suppress a finding of the security lint, or all findings, without a reason."""
    return [
        number
        for number, line in enumerate(lines, 1)
        if (match := _SUPPRESSED.search(line)) and len((match["reason"] or "").split()) < 2
    ]


def test_each_finding_of_the_security_lint_that_stays_has_a_reason() -> None:
    unexplained = {
        str(file.relative_to(ROOT)): numbers
        for file in _python_files()
        if (numbers := _unexplained(file.read_text("utf-8").splitlines()))
    }
    assert unexplained == {}


def test_each_rule_of_the_security_lint_that_is_off_has_a_reason() -> None:
    settings = (ROOT / "pyproject.toml").read_text("utf-8")
    (lint,) = re.findall(
        r"\[tool\.ruff\.lint\]\n(.*?)\n\[tool\.ruff\.lint\.pycodestyle\]", settings, re.DOTALL
    )
    assert 'select = ["ALL"]' in lint
    disabled_rules = [line for line in lint.splitlines() if _IGNORED.search(line.partition("#")[0])]
    assert disabled_rules
    assert [line for line in disabled_rules if len(line.partition("#")[2].split()) < 2] == []
    assert not re.search(r"\"S\"", lint), "a whole rule set is never off"


@pytest.mark.parametrize(
    "line",
    [
        "x = eval(y)  # {noqa}: S307",
        "x = eval(y)  # {noqa}: S307 - safe",
        "x = eval(y)  # {noqa}: E501, S307",
        "x = eval(y)  # {noqa}",
        "# ruff: {noqa}",
        "# ruff: {noqa}: S307",
    ],
)
def test_the_check_of_reasons_finds(line: str) -> None:
    assert _unexplained([line.format(noqa="noqa")]) == [1]


def test_the_devcontainer_has_the_python_of_python_version() -> None:
    devcontainer = json.loads((ROOT / ".devcontainer/devcontainer.json").read_text("utf-8"))
    assert devcontainer["image"] == "python:" + (ROOT / ".python-version").read_text("utf-8").strip()
