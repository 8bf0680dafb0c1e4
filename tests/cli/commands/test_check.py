import json
from textwrap import dedent

import pytest
from typer.testing import CliRunner

from hifi_cli.app import command_line
from hifi_cli.commands.up import _python_path
from hifi_infra.mesh.running import RunningMesh, write

GOOD = """
pipe: orders
source:
  keys: [{env: KEY}]
enrich:
  fields: {amount: double, country: string}
  lookups:
    countries:
      file: countries.csv
      key: {country: code}
      fields: {country_name: name}
  derive:
    large: amount > 1000
destinations:
  - name: all
    url: http://127.0.0.1:9/
    transform: "{id: id}"
  - name: large
    when: large
    url: http://127.0.0.1:9/
"""


@pytest.fixture
def pipes(tmp_path):
    def make(text=GOOD, **other_files):
        (tmp_path / "orders.yaml").write_text(dedent(text).lstrip())
        (tmp_path / "countries.csv").write_text("code,name\nFR,France\n")
        for name, content in other_files.items():
            (tmp_path / name.replace("__", ".")).write_text(content)
        return str(tmp_path)

    return make


def check(*arguments):
    result = CliRunner().invoke(command_line(), ["check", *arguments], env={"COLUMNS": "300"})
    return result.exit_code, result.output


def test_valid_pipes_are_reported_as_valid(pipes):
    assert check("--quick", pipes()) == (0, "1 valid pipe(s): orders\n")


@pytest.mark.parametrize(
    ("old", "new", "line", "key_path", "message"),
    [
        ("derive:", "derived:", 11, "enrich.derived", "unknown key"),
        ("http://127.0.0.1:9/\n    transform", "nowhere\n    transform", 15, "destinations[0].url", "URL"),
        ("countries.csv", "states.csv", 8, "enrich.lookups.countries.file", "states.csv does not exist"),
        (
            "{country: code}",
            "{country: iso}",
            8,
            "enrich.lookups.countries.file",
            "no column iso; it has code, name",
        ),
        ('"{id: id}"', '"{id: "', 14, "destinations[0]", "transform"),
        (
            "enrich:",
            "normalize: {function: 'shop:fix'}\nenrich:",
            4,
            "normalize.function",
            "the function shop:fix is not allowed: there is no module shop in ",
        ),
        (
            "enrich:",
            "normalize: {function: 'subprocess:call'}\nenrich:",
            4,
            "normalize.function",
            "the function subprocess:call is not allowed: there is no module subprocess in ",
        ),
        ("env: KEY", "env: HIFI_KAFKA", 3, "source.keys[0]", "HIFI_KAFKA is not allowed as a secret"),
        (
            "enrich:",
            "normalize: {fields: {t: {time: {zone: Mars}}}}\nenrich:",
            4,
            "normalize.fields.t.time",
            "time zone 'Mars'",
        ),
    ],
)
def test_a_problem_is_reported_with_its_file_and_line(pipes, old, new, line, key_path, message):
    assert old in GOOD
    folder = pipes(GOOD.replace(old, new, 1))
    code, output = check("--quick", folder)
    assert code == 1
    line_of_problem = next(
        printed
        for printed in output.splitlines()
        if printed.startswith(f"{folder}/orders.yaml:{line}: {key_path}: ")
    )
    assert message in line_of_problem


def test_a_function_beside_the_pipe_is_found(pipes):
    text = GOOD.replace("enrich:", "normalize: {function: 'beside:fix'}\nenrich:")
    assert check("--quick", pipes(text, beside__py="def fix(data):\n    return data\n"))[0] == 0
    code, output = check(
        "--quick", pipes(text.replace(":fix", ":mend"), beside__py="def fix(data): return data\n")
    )
    assert code == 1
    assert "the module beside has no 'mend'" in output


def test_functions_of_pipes_published_earlier_are_found(tmp_path):
    now, before = tmp_path / "now", tmp_path / "before"
    assert _python_path(None, tmp_path) == []
    assert _python_path(now, tmp_path) == [now]
    running_mesh = RunningMesh(
        pid=1,
        created=1.0,
        stream="s",
        kafka="k",
        brokers=1,
        url="u",
        trigger="micro-batch",
        python_path=[before, now],
    )
    write(tmp_path, running_mesh)
    assert _python_path(None, tmp_path) == [before, now]
    assert _python_path(now, tmp_path) == [now, before]


def test_sql_is_checked_by_spark_with_its_line(pipes):
    folder = pipes(GOOD.replace("amount > 1000", "amounts > 1000"))
    code, output = check(folder)
    assert code == 1
    assert f"{folder}/orders.yaml:12: enrich.derive.large: " in output
    assert "amounts" in output
    assert "amount, country" in output, "it says which fields there are"


@pytest.mark.more  # faster: test_a_function_is_refused_with_the_real_time_trigger
def test_a_udf_needs_the_micro_batch_trigger(pipes):
    udf = "  udf: {function: 'score:run', args: [amount], returns: {score: double}}\ndestinations:"
    folder = pipes(GOOD.replace("destinations:", udf), score__py="def run(frame):\n    return frame\n")
    code, output = check(folder, "--trigger", "real-time", "--json")
    assert code == 1
    [problem] = json.loads(output)
    assert problem["where"] == "enrich.udf"
    assert problem["line"] == 13


def test_a_folder_without_pipes_is_refused(tmp_path):
    code, output = check(str(tmp_path))
    assert code == 1
    assert "holds no *.yaml file" in output
    assert "is not a folder" in check(str(tmp_path / "missing"))[1]


def test_the_quotas_of_all_pipes_are_compared_with_the_rating_of_the_mesh(pipes):
    folder = pipes(GOOD.replace("keys: [{env: KEY}]", "keys: [{env: KEY}]\n  quota: {events: 81/s}"))
    result = CliRunner().invoke(command_line(), ["check", "--quick", "--rating", "102", str(folder)])
    assert result.exit_code == 0, result.output
    too_much = CliRunner().invoke(
        command_line(), ["check", "--quick", str(folder)], env={"HIFI_RATING": "100"}
    )
    assert too_much.exit_code == 1
    assert "the quotas of 1 pipe are 81 events/s together" in too_much.output
