"""Variables that this release does not know are named with the place where they are set."""

from pathlib import Path

import pytest

from hifi.runtime.errors import Misconfigured
from hifi_cli.reference.settings_names import settings_file, settings_names
from hifi_cli.upgrade.setting_changes import compose_variables, known_settings, setting_changes

ROOT = Path(__file__).parents[3]


def test_the_names_are_generated_from_the_current_code() -> None:
    assert settings_file(ROOT).read_text("utf-8") == settings_names(ROOT), (
        "run: python -m hifi_cli.reference docs"
    )


def test_removed_and_misspelt_variables_are_named_and_others_left_alone() -> None:
    variables = {
        "a": ["HIFI_KAFKA", "HIFI_OBSERVE_KEEP_H", "PATH", "KEY_OF_A_PIPE", "HIFI_PROVISION_RAMP_S"],
        "b": ["HIFI_OBSERVE_KEPT_H"],
    }
    changes = setting_changes(variables, known_settings())
    assert [(change.name, change.now) for change in changes] == [
        ("HIFI_PROVISION_RAMP_S", "set in the a"),
        ("HIFI_OBSERVE_KEPT_H", "set in the b"),
    ]
    assert "HIFI_OBSERVE_KEEP_H" in changes[1].what_to_do


def test_every_variable_of_the_compose_files_is_known() -> None:
    for file in sorted((ROOT / "infra").glob("compose*.yaml")):
        assert setting_changes(compose_variables(file), known_settings()) == [], file


def test_compose_files_have_lists_and_mappings(tmp_path: Path) -> None:
    file = tmp_path / "compose.yaml"
    file.write_text(
        "x-all: &all {HIFI_A: 1}\n"
        "services:\n"
        "  egest: {environment: {<<: *all, HIFI_B: }}\n"
        "  lake: {environment: [HIFI_C=2, HIFI_D]}\n"
        "  kafka: {image: x}\n"
    )
    names = {
        location.partition(" of ")[0]: sorted(rows) for location, rows in compose_variables(file).items()
    }
    assert names == {
        "service egest": ["HIFI_A", "HIFI_B"],
        "service lake": ["HIFI_C", "HIFI_D"],
        "service kafka": [],
    }


@pytest.mark.parametrize("text", ["{", "- a", "services: 3", "\x00", "a: !x 1\nservices: []"])
def test_what_is_no_compose_file_is_refused(tmp_path: Path, text: str) -> None:
    file = tmp_path / "compose.yaml"
    with pytest.raises(Misconfigured, match=r"compose\.yaml"):
        compose_variables(file)
    file.write_text(text)
    with pytest.raises(Misconfigured, match=r"compose\.yaml"):
        compose_variables(file)
