"""Each file of the corpus, and changed copies of it, are read or refused as documented. `make fuzz` looks for more."""

import subprocess
import sys
from pathlib import Path

import pytest
from tests.fuzz.decoders import DECODERS
from tests.fuzz.mutation import mutations

CORPUS = Path(__file__).parent / "corpus"
CHANGED = 250
"""Copies for each decoder."""
CHANGED_PIPES = 50
"""A pipe takes 50 ms to read and check."""
ISOLATED = ("parquet", "avro-file")
"""Their parsers are not Python, and may end the process; collect runs them in one that may end."""
ROOT = Path(__file__).parents[2]


def seeds(name: str) -> list[bytes]:
    return [file.read_bytes() for file in sorted((CORPUS / name).iterdir())]


def test_each_decoder_has_a_corpus_and_the_corpus_is_small() -> None:
    assert {folder.name for folder in CORPUS.iterdir()} == DECODERS.keys()
    sizes = {file: file.stat().st_size for file in CORPUS.rglob("*") if file.is_file()}
    assert sum(sizes.values()) < 400_000
    assert max(sizes.values()) <= 20_000


@pytest.mark.parametrize("name", [name for name in DECODERS if name not in ISOLATED])
def test_each_input_is_read_or_refused_as_documented(name: str) -> None:
    copies = mutations(seeds(name), CHANGED_PIPES if name == "pipe" else CHANGED)
    for data in (*seeds(name), *copies):
        try:
            DECODERS[name](data)
        except Exception as error:
            raise AssertionError(f"{error!r} at {data!r:.2000}") from error


@pytest.mark.parametrize("name", ISOLATED)
def test_each_object_is_read_or_refused_as_documented(name: str) -> None:
    code = (
        "import sys; from tests.fuzz.test_fuzz import seeds, test_each_input_is_read_or_refused_as_documented as test;"
        "test(sys.argv[1])"
    )
    completed = subprocess.run(
        [sys.executable, "-c", code, name], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert completed.returncode <= 0, completed.stderr[-3000:]


def test_a_defect_is_found() -> None:
    mutated = list(mutations(seeds("ndjson"), CHANGED))
    assert any(max(data.count(b"["), data.count(b"{")) > 40 for data in mutated), "nothing is nested deeply"
    assert any(b"9" * 5000 in data for data in mutated)
    assert mutated == list(mutations(seeds("ndjson"), CHANGED)), "a failure is not repeatable"
