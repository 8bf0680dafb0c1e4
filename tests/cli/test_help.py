import os
import re
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest
from typer.testing import CliRunner

from hifi_cli import app
from hifi_cli.app import command_line

HIFI = Path(sys.executable).with_name("hifi")
COMMANDS = (
    "demo",
    "rate",
    "up",
    "down",
    "status",
    "check",
    "apply",
    "pipes",
    "send",
    "dead list",
    "dead show",
    "dead replay",
    "acl show",
    "acl apply",
    "topics show",
)


@pytest.mark.parametrize("command", COMMANDS)
def test_the_help_of_every_command_has_an_example(command):
    result = CliRunner().invoke(command_line(), [*command.split(), "--help"], env={"COLUMNS": "200"})
    assert result.exit_code == 0
    assert re.search(rf"^ +(\S+=\S+ |.*\| )?hifi {command}( |$)", result.output, re.MULTILINE), result.output


@pytest.mark.slow
def test_a_command_alone_is_the_same_as_among_all_others():
    """The program imports only the module of the command that is called."""
    for name in app.COMMANDS:
        single_result, group_result = (
            CliRunner().invoke(command, [name, "--help"]) for command in (command_line(name), command_line())
        )
        assert (single_result.exit_code, single_result.output) == (0, group_result.output)


def test_without_a_command_the_help_says_where_to_start():
    output = CliRunner().invoke(command_line(), []).output
    assert "Start here" in output
    assert "hifi demo" in output


def test_shell_completion_is_available():
    env = {"_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"}
    completed = subprocess.run(
        [HIFI, "--show-completion", "bash"], check=True, env=os.environ | env, capture_output=True, text=True
    )
    assert "complete -o default -F _hifi_completion hifi" in completed.stdout


def test_version_lists_the_main_dependencies():
    output = CliRunner().invoke(command_line(), ["version", "--json"]).output
    assert '"hifi-cli"' in output
    assert '"pyspark": "4.2.0"' in output


def test_the_option_version_prints_the_version_of_hifi():
    result = CliRunner().invoke(command_line(), ["--version"])
    assert result.exit_code == 0
    assert result.output == f"hifi {metadata.version('hifi-cli')}\n"
