"""The pages of benchmarks are what their file of results gives; nobody edits them by hand."""

import json
import re
from pathlib import Path

import pytest
from benchmarks_page import DETAILS, PAGE, details, page

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(("name", "generate"), [(PAGE, page), (DETAILS, details)])
def test_the_page_is_generated_from_the_results_that_it_names(name, generate):
    text = (ROOT / name).read_text("utf-8")
    [file] = set(re.findall(r"bench/results/([\w-]+\.json)", text)[:1])
    assert text == generate(json.loads((ROOT / "bench/results" / file).read_bytes()), file), (
        f"run: python bench/benchmarks_page.py bench/results/{file}"
    )
