"""Each mutation breaks a guarantee of the page, applies to the tree, and names a test that exists."""

import subprocess
from pathlib import Path

import pytest
from tests.mutations.mutation import Mutation, mutations

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "reliability.md").read_text()


@pytest.mark.parametrize("mutation", mutations(), ids=lambda mutation: mutation.name)
def test_a_mutation_applies_and_names_its_guarantee_and_its_test(mutation: Mutation) -> None:
    assert f"| {mutation.guarantee} |" in PAGE
    file, _, name = mutation.test.partition("::")
    assert f"def {name}" in (ROOT / file).read_text()
    check = ["git", "apply", "--check", str(mutation.file)]
    subprocess.run(check, cwd=ROOT, check=True, capture_output=True)
