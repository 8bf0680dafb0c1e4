"""Variables, metrics, headers and modules that the pages name exist."""

import ast
import re
from bisect import bisect_left
from functools import cache
from itertools import chain
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
SOURCES = ("libs", "connectors", "services", "infra", "cli")
ENDINGS = {".py", ".yaml", ".sh", ".html"}


@cache
def source_files():
    """The sources: each file's path in the tree, and its text."""
    files = chain.from_iterable((ROOT / folder).rglob("*") for folder in SOURCES)
    return {str(file.relative_to(ROOT)): file.read_text("utf-8") for file in files if file.suffix in ENDINGS}


@cache
def source():
    return "\n".join(source_files().values())


@cache
def words():
    """The words of the sources, sorted."""
    return sorted(set(re.findall(r"\w+", source())))


@cache
def words_and_fields():
    """The words of the sources, and names of fields as `name:`."""
    return {*words(), *re.findall(r"^    (\w+:) ", source(), re.MULTILINE)}


def begins_a_word(name):
    place = bisect_left(words(), name)
    return place < len(words()) and words()[place].startswith(name)


def names(page, pattern):
    return sorted(set(re.findall(pattern, page.read_text("utf-8"))))


def module_exists(dotted):
    """Whether a module, or an attribute of one, is in the tree: `hifi.topics`, `hifi.kafka.consumer.Consumer`."""
    package, *attributes = dotted.split(".")
    packages = [*(ROOT / "connectors").iterdir(), *(ROOT / "services").iterdir()]
    roots = [ROOT / "libs", ROOT / "infra", ROOT / "cli", *packages]
    for root in roots:
        folder = root / package
        for index, attribute in enumerate(attributes):
            if (folder / attribute).is_dir():
                folder /= attribute
            elif (file := folder / f"{attribute}.py").is_file():
                remaining_attributes = attributes[index + 1 :]
                return (
                    not remaining_attributes
                    or re.search(rf"\b{remaining_attributes[0]}\b", file.read_text("utf-8")) is not None
                )
            else:
                break
        else:
            if folder.is_dir():
                return True
    return False


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_variable_on_a_page_exists(page):
    settings = (ROOT / "docs/settings.md").read_text("utf-8")
    for name in names(page, r"\bHIFI_[A-Z0-9_]*[A-Z0-9]"):
        field = name.removeprefix("HIFI_").lower()  # of a settings model that has no page
        assert name in settings or not words_and_fields().isdisjoint({name, f"{field}:"}), name


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_metric_and_header_on_a_page_exists(page):
    for name in names(
        page, r"\bhifi_(?!kafka\b)[a-z_]*[a-z]"
    ):  # hifi_kafka is a volume of the compose project
        assert begins_a_word(name.removesuffix("_total")), name


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_module_on_a_page_exists(page):
    for name in names(page, r"`(hifi(?:_[a-z]+)?(?:\.\w+)+)`"):
        assert module_exists(name) or f'"{name}"' in source(), name  # or an attribute of spans


NOT_LETTERS = {"not-replayable"}
"""Reasons that answer a command or a request, and are in no dead letter."""
LISTED_ELSEWHERE = ("connectors/", "libs/hifi/pipe/sources/")
"""Code whose reasons are on the pages of sources and destinations; all others are on that of operations."""


def name_of(node):
    """The last part of a name: `reason` of `self.reason`."""
    return node.id if isinstance(node, ast.Name) else getattr(node, "attr", None)


def texts(node):
    """The texts that an expression can be; none: it is no constant."""
    if isinstance(node, ast.IfExp):
        return texts(node.body) | texts(node.orelse)
    is_text = isinstance(node, ast.Constant) and isinstance(node.value, str)
    return {node.value} - {""} if is_text else set()


def assigned_texts(tree, name):
    """The texts that a module assigns to a variable, an attribute or an element of a tuple."""
    assigned_constants = set()
    for node in ast.walk(tree):
        if not isinstance(node, ast.Assign | ast.AnnAssign):
            continue
        for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
            pairs: list[tuple[ast.expr, ast.expr | None]] = [(target, node.value)]
            if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
                pairs = list(zip(target.elts, node.value.elts, strict=False))
            assigned_constants |= {
                text for part, value in pairs if name_of(part) == name for text in texts(value)
            }
    return assigned_constants


def rejection_reasons(text):
    """The reasons with which a module makes a `Rejected`: as a constant, or by a name that has one."""
    tree, reasons = ast.parse(text), set()
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call) or name_of(node.func) != "Rejected" or not node.args:
            continue
        reasons |= texts(node.args[0])
        if (name := name_of(node.args[0])) is not None:
            named_reasons = assigned_texts(tree, name)
            if not named_reasons and name.isupper():  # imported
                named_reasons = set(re.findall(rf'^{name}: Final = "(.+)"$', source(), re.MULTILINE))
            reasons |= named_reasons
    return reasons


def test_every_reason_of_a_dead_letter_is_on_a_page():
    operations = (ROOT / "docs/operations.md").read_text("utf-8")
    documented = "\n".join(page.read_text("utf-8") for page in PAGES)
    all_reasons, missing = set(), []
    for file, text in source_files().items():
        if not file.endswith(".py") or "Rejected(" not in text:
            continue
        reasons = rejection_reasons(text) - NOT_LETTERS
        all_reasons |= reasons
        pages = documented if file.startswith(LISTED_ELSEWHERE) else operations
        missing += [f"{file}: {reason}" for reason in sorted(reasons) if f"`{reason}`" not in pages]
    assert {"schema", "cast", "time", "mask-unavailable", "function-ended"} <= all_reasons
    assert not missing


def test_every_test_that_a_page_names_without_its_file_exists():
    files = (ROOT / "tests").rglob("*.py")
    tests = set(
        re.findall(r"^(?:async )?def (test_\w+)\(", "\n".join(map(Path.read_text, files)), re.MULTILINE)
    )
    for page in PAGES:
        for name in names(page, r"`(test_\w+)`"):
            assert name in tests, f"{page.name}: {name}"
