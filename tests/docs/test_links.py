"""Links between the pages lead somewhere, and the tests that they name exist."""

import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [
    *ROOT.glob("*.md"),
    *sorted((ROOT / "docs").rglob("*.md")),
    *sorted((ROOT / "connectors").rglob("*.md")),
    *sorted((ROOT / "examples").rglob("*.md")),
    *sorted((ROOT / "bench").rglob("*.md")),
]
LINK = re.compile(r"(?<!`)\[[^\]]*\]\(([^)\s]+)\)")
CODE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
TEST = re.compile(r"`((?:[\w-]+/)+test_\w+\.py)(?:::(test_\w+))?`")


@cache
def anchors(page):
    """The anchors of a page's headings, as GitHub makes them."""
    text = CODE.sub("", page.read_text("utf-8"))
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_relative_link_leads_to_a_file_and_a_heading(page):
    for target in LINK.findall(CODE.sub("", page.read_text("utf-8"))):
        if re.match(r"[a-z]+:", target):
            continue
        name, _, anchor = target.partition("#")
        linked = (page.parent / name).resolve() if name else page
        assert linked.exists(), target
        if anchor and linked.suffix == ".md":
            assert anchor in anchors(linked), target


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_test_that_a_page_names_exists(page):
    for path, name in TEST.findall(page.read_text("utf-8")):
        file = ROOT / path if path.startswith("tests/") else ROOT / "tests" / path
        assert file.is_file(), path
        assert not name or re.search(rf"^(async )?def {name}\(", file.read_text("utf-8"), re.MULTILINE), name
