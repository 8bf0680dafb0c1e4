"""The documentation stays short enough to be read."""

import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[2]
MOST_WORDS = 45_000 + 6 * 1_500
"""In all pages but laboratory notes and the rows of runs: 1,500 more each for fidelity, access, speed, state, releases
and Kubernetes. Marks of tables and lists are no words."""
RECORDS = ("bench/notes/", "tests/more-runs.md")
WORD = re.compile(r"\S*\w\S*")


def test_the_pages_have_no_more_words_than_a_reader_has_time_for():
    output = subprocess.check_output(["git", "ls-files", "*.md"], cwd=ROOT, text=True)
    pages = [page for page in output.splitlines() if not page.startswith(RECORDS)]
    assert len(pages) > 70
    words = {page: len(WORD.findall((ROOT / page).read_text("utf-8"))) for page in pages}
    assert sum(words.values()) <= MOST_WORDS, sorted(words.items(), key=lambda item: -item[1])[:10]
