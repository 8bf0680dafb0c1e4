"""Each mutation breaks a promise of its page, applies to the tree, and names a test; each promise has one."""

import subprocess
from pathlib import Path
from typing import Final

import pytest
from tests.mutations.mutation import Mutation, guarantees, mutations, threats

ROOT: Final = Path(__file__).parents[2]
WITHOUT: Final = {
    "a process is taken over": "the tests need images, which are built from the tree",
    "a pipe that is not allowed stops others": "its test waits without the control, longer than a mutation may take",
}
"""Threats without a mutation, and why."""


@pytest.mark.parametrize("mutation", mutations(), ids=lambda mutation: mutation.name)
def test_a_mutation_applies_and_names_a_test(mutation: Mutation) -> None:
    file, _, name = mutation.test.partition("::")
    assert f"def {name}" in (ROOT / file).read_text()
    check = ["git", "apply", "--check", str(mutation.file)]
    subprocess.run(check, cwd=ROOT, check=True, capture_output=True)


def test_each_guarantee_has_a_mutation() -> None:
    assert len(guarantees()) >= 20
    assert {mutation.promise for mutation in mutations("reliability")} == set(guarantees())


@pytest.mark.parametrize("mutation", mutations("security"), ids=lambda mutation: mutation.name)
def test_a_mutation_of_security_fails_a_test_that_the_page_names_for_its_threat(mutation: Mutation) -> None:
    assert mutation.test.partition("::")[2] in threats()[mutation.promise]


def test_each_threat_has_a_mutation_or_a_reason_for_none() -> None:
    assert len(threats()) >= 30
    assert sorted({*(mutation.promise for mutation in mutations("security")), *WITHOUT}) == sorted(threats())
