"""Figures on pages say where they come from, and how long a command takes stands in the Makefile's help alone."""

import json
import re
from importlib.metadata import entry_points
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
USER_PAGES = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").glob("*.md"))]
PAGES = [
    *USER_PAGES,
    *sorted((ROOT / "docs/decisions").glob("*.md")),
    *sorted((ROOT / "bench/notes").glob("*.md")),
]
MEASURED = ["comparison", "colours", "control-plane", "security", "deploy", "operations"]
"""Pages whose figures are checked one by one; benchmarks.md is generated."""
FIGURE = re.compile(r"\d[\d,.]*\s?(?:ms|s|%|MiB|GiB|MB|GB|ev/s|events a second|events/s|times)(?![\w])")
MACHINE = re.compile(r"\b(?:two|2) (?:\w+ )?cores\b|\bof a core\b|\bmeasured (?:on|with|at)\b", re.IGNORECASE)
SOURCE = re.compile(r"\b20\d\d-\d\d\b|bench/results/|bench/notes/")
RESULTS = re.compile(r"bench/results/([\w-]+\.(?:json|ndjson))")
DURATION = re.compile(r"(?:\d+|one|two|three|four|five|six|seven|eight|nine|ten) (?:minutes?|hours?)\b")
KINDS = {
    "http": "HTTP", "kafka": "Kafka", "debezium": "Debezium", "sql": "databases", "objects": "buckets",
    "postgres": "PostgreSQL", "iceberg": "Iceberg", "step": "steps",
}  # fmt: skip
"""Each kind of source or destination, and the word by which the comparison names it."""


def blocks(page):
    """The paragraphs, tables and list entries of a page."""
    return re.split(r"\n\s*\n|\n(?=- )", page.read_text("utf-8"))


def page_id(page):
    return str(page.relative_to(ROOT))


def test_every_figure_of_the_comparison_has_a_date_or_a_file_of_results():
    for block in blocks(ROOT / "docs/comparison.md"):
        if FIGURE.search(block):
            assert SOURCE.search(block), block


@pytest.mark.parametrize("name", MEASURED)
def test_what_was_measured_on_a_machine_has_a_date_or_a_file_of_results(name):
    for block in blocks(ROOT / f"docs/{name}.md"):
        if MACHINE.search(block) and FIGURE.search(block):
            assert SOURCE.search(block), block


@pytest.mark.parametrize("page", PAGES, ids=page_id)
def test_every_file_of_results_on_a_page_exists(page):
    for name in RESULTS.findall(page.read_text("utf-8")):
        assert (ROOT / "bench/results" / name).is_file(), name


def test_the_comparison_has_the_figures_of_the_benchmarks_page():
    newest = RESULTS.findall((ROOT / "docs/benchmarks.md").read_text("utf-8"))[0]
    assert f"bench/results/{newest}" in (ROOT / "docs/comparison.md").read_text("utf-8"), (
        "compare its figures with the benchmarks again"
    )


def test_statements_about_other_systems_are_dated():
    head, features = (ROOT / "docs/comparison.md").read_text("utf-8").split("## Features")
    for text in (head, features.split("\n|")[0]):
        assert re.search(r"as of 20\d\d-\d\d", text, re.IGNORECASE)


def test_the_comparison_names_every_kind_of_source_and_destination():
    models = json.loads((ROOT / "docs/pipe.schema.json").read_bytes())["$defs"]
    kinds = {
        model["properties"]["kind"].get("const")
        for model in models.values()
        if "kind" in model.get("properties", {})
    }
    kinds |= {point.name for point in entry_points(group="hifi.destinations")}
    assert kinds - {None} == set(KINDS)
    page = (ROOT / "docs/comparison.md").read_text("utf-8")
    for kind, word in KINDS.items():
        assert word in page, kind


@pytest.mark.parametrize("page", USER_PAGES, ids=page_id)
def test_no_page_says_how_long_a_make_target_takes(page):
    for block in blocks(page):
        lines = [line for line in block.splitlines() if re.search(r"`make [a-z]", line)]
        assert not (lines and re.search(r"\| (?:Time|Seconds|Minutes|Duration) \|", block)), block
        for line in lines:
            assert not DURATION.search(line), f"`make help` says it: {line}"
