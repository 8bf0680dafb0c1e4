"""Class names have one meaning, what is called pure is pure, Kafka's clients are made in one module, helpers of tests
have a package, and findings that stay have a reason.
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
    places: defaultdict[str, list[str]] = defaultdict(list)
    for file in FILES:
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            if isinstance(node, ast.ClassDef):
                places[node.name].append(str(file.relative_to(ROOT)))
    assert {name: files for name, files in places.items() if len(files) > 1} == {}


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
    parts = name.split(".")
    prefixes = {".".join(parts[:length]) for length in range(1, len(parts) + 1)}
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


_CLIENT_MODULE: Final = ROOT / "libs/hifi/kafka/clients.py"
_CLIENTS: Final = frozenset(
    {"AIOKafkaAdminClient", "AIOKafkaConsumer", "AIOKafkaProducer", "AdaptiveConsumer", "CooperativeConsumer"}
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
        and (lines := list(_client_uses(ast.parse(file.read_text("utf-8")))))
    }
    assert len(uses.pop(_CLIENT_MODULE)) == len(_CLIENTS) + 1, "two functions make producers"
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
    off = [line for line in lint.splitlines() if _IGNORED.search(line.partition("#")[0])]
    assert off
    assert [line for line in off if len(line.partition("#")[2].split()) < 2] == []
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
