"""Class names have one meaning, what is called pure is pure, helpers of tests have a package, and findings that
stay have a reason.
"""

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

ROOT = Path(__file__).parents[1]
FILES = sorted(
    file
    for folder in ("libs", "connectors", "services", "infra", "cli")
    for file in (ROOT / folder).rglob("*.py")
    if not {"build", ".venv"} & set(file.parts)
)
_PURE: Final = re.compile(r"\bPure[.,:]")
_IMPURE: Final = frozenset(
    {
        *(
            "aiodocker",
            "aiohttp",
            "aiokafka",
            "boto3",
            "confluent_kafka",
            "httpx",
            "psycopg.connect",
            "pyiceberg",
        ),
        *(
            "asyncio",
            "concurrent",
            "multiprocessing",
            "signal",
            "subprocess",
            "threading",
            "uvicorn",
            "uvloop",
        ),
        *("random", "secrets", "time", "uuid.uuid1", "uuid.uuid4", "os.environ", "os.urandom"),
        *("select", "shutil", "smtplib", "socket", "ssl", "tempfile", "urllib.request"),
        *("hifi.runtime.clock", "hifi.runtime.health", "hifi.runtime.log", "hifi.runtime.metrics"),
        *(
            "hifi.runtime.http.server",
            "hifi.runtime.lifetime",
            "hifi.runtime.process",
            "hifi.runtime.service",
        ),
    }
)
"""Modules and names with Kafka, tasks, a clock, chance, the network, other processes or files."""
_ALLOWED: Final = frozenset({"hifi.runtime.clock.MICROSECONDS"})
_IMPURE_CALLS: Final = frozenset(
    {
        *("now", "today", "utcnow", "urandom", "uuid1", "uuid4", "getenv"),
        *(
            "iterdir",
            "mkdir",
            "open",
            "print",
            "read_bytes",
            "read_text",
            "unlink",
            "write_bytes",
            "write_text",
        ),
    }
)
"""Functions and methods with which a module reads a clock, chance or files."""


def test_a_class_name_means_one_thing() -> None:
    files_by_class: defaultdict[str, list[str]] = defaultdict(list)
    for file in FILES:
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            if isinstance(node, ast.ClassDef):
                files_by_class[node.name].append(str(file.relative_to(ROOT)))
    assert {name: files for name, files in files_by_class.items() if len(files) > 1} == {}


def _impurities(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.AsyncFunctionDef | ast.Await):
            yield "async"
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if _is_impure(alias.name))
        elif isinstance(node, ast.ImportFrom):
            names = [f"{node.module}.{alias.name}" for alias in node.names]
            yield from (name for name in names if _is_impure(name))
        elif isinstance(node, ast.Call):
            function = node.func
            name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
            if name in _IMPURE_CALLS:
                yield f"{name}()"


def _is_impure(name: str) -> bool:
    segments = name.split(".")
    prefixes = {".".join(segments[:length]) for length in range(1, len(segments) + 1)}
    return name not in _ALLOWED and bool(prefixes & _IMPURE)


def test_what_is_called_pure_is_pure() -> None:
    impure = {}
    pure = 0
    for file in FILES:
        tree = ast.parse(file.read_text("utf-8"))
        if _PURE.search(ast.get_docstring(tree) or ""):
            pure += 1
            if reasons := sorted(set(_impurities(tree))):
                impure[str(file.relative_to(ROOT))] = reasons
    assert pure > 100, "the docstrings are not found"
    assert impure == {}


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
    assert list(_impurities(ast.parse(source)))


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
    folders = ("libs", "connectors", "services", "infra", "cli", "bench", "examples", "tests", "requirements")
    files = [
        file for folder in folders for file in (ROOT / folder).rglob("*.py") if "build" not in file.parts
    ]
    assert len(files) > 800, "the files are not found"
    unexplained = {
        str(file.relative_to(ROOT)): numbers
        for file in files
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
