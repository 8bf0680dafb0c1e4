"""Every problem in a pipe is reported with its file, line and key."""

import hashlib
import socket
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from hifi.pipe.loader import PipeProblem, load
from hifi.pipe.model import MapRule, Pipe
from hifi.pipe.shared_keys import require_keys_of_their_own
from hifi.runtime.errors import Misconfigured

GOOD = """\
pipe: orders
source:
  keys: [{env: ORDERS_KEY}]
destinations:
  - name: shop
    url: http://127.0.0.1:9/orders
"""


def problems(folder: Path, text: str, name: str = "orders.yaml") -> list[PipeProblem]:
    (folder / name).write_text(text)
    return load(folder)[1]


def test_a_minimal_pipe_loads_with_its_defaults(tmp_path: Path) -> None:
    assert problems(tmp_path, GOOD) == []
    pipe = load(tmp_path)[0][0].pipe
    assert pipe.destinations[0].timeout == 10
    assert Pipe.model_validate_json(pipe.model_dump_json(by_alias=True, exclude_defaults=True)) == pipe


@pytest.mark.parametrize(
    ("change", "line", "key_path", "message"),
    [
        (("    url:", "    uri:"), 6, "destinations[0].uri", "unknown key"),
        (("keys: [{env: ORDERS_KEY}]", "keys: []"), 3, "source.keys", "at least 1 item"),
        (("{env: ORDERS_KEY}", "{env: A, file: b}"), 3, "source.keys[0]", "exactly one of"),
        (("pipe: orders", "pipe: Orders!"), 1, "pipe", "pattern"),
        (
            ("    url: http://127.0.0.1:9/orders", "    timeout: soon\n    url: http://h/"),
            6,
            "destinations[0].timeout",
            "not a duration",
        ),
        (
            ("    url: http://127.0.0.1:9/orders", "    rate: 5\n    url: nowhere"),
            7,
            "destinations[0].url",
            "URL",
        ),
        *(
            (("url: http://127.0.0.1:9/orders", f"url: {url}"), 6, "destinations[0].url", message)
            for url, message in (
                ("https://user:p%40ss@host/a%20b#x", "declare the header Authorization with a secret"),
                ("https://user@host/", "declare the header Authorization with a secret"),
                ("https://:pass@host/", "declare the header Authorization with a secret"),
                ("'https://host/a#x'", "take it out, or write `%23`"),
                ("'https://host/a?b=1#'", "take it out, or write `%23`"),
            )
        ),
        (
            ("pipe: orders", "pipe: orders\nowner: {webhook: 'https://user:pw@host/'}"),
            2,
            "owner.webhook",
            "declare the header Authorization with a secret",
        ),
        (("source:\n", "source:\n  time: [\n"), 5, "", "not YAML"),
        *(
            (
                ("destinations:", f"normalize: {{fields: {{t: {{time: {time}}}}}}}\ndestinations:"),
                4,
                "normalize.fields.t.time",
                message,
            )
            for time, message in (
                ("{format: '%Y %Y'}", "has a directive twice"),
                ("{format: '%c%Y'}", "has a directive twice"),
                ("{format: '%Q'}", "bad directive"),
                ("{format: '%Y-%'}", "stray %"),
                ("{zone: Mars/Olympus}", "there is no time zone"),
            )
        ),
        (
            ("destinations:", "enrich: {derive: {late: x > 1}, fields: {late: int}}\ndestinations:"),
            4,
            "enrich",
            "sets 'late'",
        ),
    ],
)
def test_a_problem_is_reported_with_its_line(
    tmp_path: Path, change: tuple[str, str], line: int, key_path: str, message: str
) -> None:
    found_problems = problems(tmp_path, GOOD.replace(*change))
    assert any(
        (problem.line, problem.where) == (line, key_path) and message in problem.message
        for problem in found_problems
    ), found_problems


@pytest.mark.parametrize(
    ("time_format", "message"),
    [
        ("%Y %W", "add %u"),
        ("%Y week %U", "add %u"),
        ("%Y-%m-%d %H:%M %p", "AM or PM (%p) need each other"),
        ("%Y-%m-%d %I:%M", "AM or PM (%p) need each other"),
        ("%d/%m %H:%M", "each time would be in 1900"),
        ("%H:%M %%Y", "each time would be in 1900"),
        *(
            (accepted, "")
            for accepted in ("%Y %W %u", "%G-W%V-%u", "%d.%m.%y %I:%M %p", "%c", "%Y", "epoch_s", "iso8601")
        ),
    ],
)
def test_a_time_format_that_loses_a_part_of_the_time_is_refused(
    tmp_path: Path, time_format: str, message: str
) -> None:
    pipe_problems = problems(
        tmp_path, f"{GOOD}normalize:\n  fields:\n    t: {{time: {{format: '{time_format}'}}}}\n"
    )
    assert [(problem.line, message in problem.message) for problem in pipe_problems] == [(9, True)] * bool(
        message
    )


def test_aliases_that_stand_for_too_much_are_refused_before_they_are_followed(tmp_path: Path) -> None:
    lines = ["pipe: bomb", "x0: &x0 [1, 1, 1, 1, 1, 1, 1, 1, 1, 1]"]
    lines += [f"x{level}: &x{level} [{', '.join([f'*x{level - 1}'] * 10)}]" for level in range(1, 30)]
    (tmp_path / "bomb.yaml").write_text("\n".join(lines))
    (tmp_path / "loop.yaml").write_text("pipe: loop\nsource: &loop [*loop]\n")
    (tmp_path / "plain.yaml").write_text(
        "pipe: plain\nsource: {keys: [{env: &name K}], id: *name}\ndestinations: [{name: d, url: 'https://a.example'}]"
    )
    pipes, problems = load(tmp_path)
    assert [loaded_pipe.pipe.pipe for loaded_pipe in pipes] == ["plain"]
    assert {problem.file.name for problem in problems} == {"bomb.yaml", "loop.yaml"}
    assert "aliases that stand for more" in problems[0].message


def test_two_files_may_not_declare_the_same_pipe_or_share_a_key(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(GOOD)
    assert "declared in a.yaml too" in str(problems(tmp_path, GOOD, "b.yaml")[0])
    (tmp_path / "b.yaml").unlink()
    assert "same write key" in str(
        problems(tmp_path, GOOD.replace("pipe: orders", "pipe: other"), "c.yaml")[0]
    )


def test_a_schema_file_is_included_and_the_path_of_a_lookup_is_made_absolute(tmp_path: Path) -> None:
    (tmp_path / "order.json").write_text('{"type": "object"}')
    text = (
        GOOD
        + """\
normalize: {schema: order.json}
enrich:
  fields: {sku: string}
  lookups: {items: {file: items.csv, key: {sku: sku}, fields: {title: title}}}
"""
    )
    assert problems(tmp_path, text) == []
    pipe = load(tmp_path)[0][0].pipe
    assert pipe.normalize.json_schema == {"type": "object"}
    assert pipe.enrich.lookups["items"].file == tmp_path.resolve() / "items.csv"


@pytest.mark.parametrize("schema", ["missing.json", "{type: 7}"])
def test_a_missing_or_invalid_schema_is_reported(tmp_path: Path, schema: str) -> None:
    found_problems = problems(tmp_path, GOOD + f"normalize:\n  schema: {schema}\n")
    assert [(problem.line, problem.where) for problem in found_problems] == [(8, "normalize.schema")]


def test_a_folder_without_pipes_is_reported(tmp_path: Path) -> None:
    assert "holds no *.yaml file" in str(load(tmp_path)[1][0])
    assert "is not a folder" in str(load(tmp_path / "nowhere")[1][0])


@pytest.mark.parametrize(
    "reference",
    [
        "http://127.0.0.1:{port}/latest",
        "file:///etc/passwd",
        "file:/no/such/file",
        "other.json",
        "/etc/passwd",
        "../other.json",
    ],
)
@pytest.mark.parametrize("keyword", ["$ref", "$dynamicRef", "$schema"])
def test_a_reference_of_a_schema_is_neither_fetched_nor_opened(
    tmp_path: Path, reference: str, keyword: str
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.setblocking(False)
        text = reference.format(port=server.getsockname()[1])
        (tmp_path / "other.json").write_text('{"type": "object"}')
        line = f"normalize: {{schema: {{{keyword}: '{text}'}}}}\n"
        found_problems = problems(tmp_path, GOOD + line)
        assert [(problem.line, problem.where) for problem in found_problems] == [(7, "normalize.schema")]
        assert "No such file" not in found_problems[0].message
        with pytest.raises(BlockingIOError):
            server.accept()


def test_a_reference_within_the_schema_is_followed(tmp_path: Path) -> None:
    schema = "{$ref: '#/$defs/a', $defs: {a: {type: object}}}"
    assert problems(tmp_path, f"{GOOD}normalize: {{schema: {schema}}}\n") == []


@pytest.mark.parametrize(
    "file", ["../schema.json", "{outside}/schema.json", "link.json", "folder/schema.json"]
)
def test_a_schema_is_a_file_in_the_folder_of_its_pipe(tmp_path: Path, file: str) -> None:
    pipes, outside_folder = tmp_path / "pipes", tmp_path / "outside"
    pipes.mkdir()
    outside_folder.mkdir()
    for folder in (tmp_path, outside_folder):
        (folder / "schema.json").write_text('{"type": "object"}')
    (pipes / "link.json").symlink_to(outside_folder / "schema.json")
    (pipes / "folder").symlink_to(outside_folder)
    found_problems = problems(
        pipes, f"{GOOD}normalize: {{schema: '{file.format(outside=outside_folder)}'}}\n"
    )
    assert [(problem.line, problem.where) for problem in found_problems] == [(7, "normalize.schema")]
    (pipes / "schema.json").write_text('{"type": "object"}')
    assert problems(pipes, f"{GOOD}normalize: {{schema: schema.json}}\n") == []


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("{env: ORDERS_KEY}", "{env: ORDERS_KEY}"),
        ("{env: ORDERS_KEY}", "{env: ORDERS_KEY, quota: {events: 5/s}}"),
        ("{file: /run/secrets/k}", "{file: /run/secrets/../secrets/k}"),
    ],
)
def test_pipes_do_not_share_a_write_key_whatever_its_quota(tmp_path: Path, first: str, second: str) -> None:
    (tmp_path / "a.yaml").write_text(GOOD.replace("{env: ORDERS_KEY}", first))
    text = GOOD.replace("pipe: orders", "pipe: other").replace("{env: ORDERS_KEY}", second)
    (problem,) = problems(tmp_path, text, "b.yaml")
    assert (problem.line, problem.where) == (3, "source.keys[0]")
    assert "same write key" in problem.message


KEY = "write-key-of-two"
DIGEST = hashlib.sha256(KEY.encode()).hexdigest()


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("{file: key}", f"{{sha256: {DIGEST}}}"),
        (f"{{sha256: {DIGEST}}}", "{env: SAME_KEY}"),
        ("{env: SAME_KEY}", "{file: key}"),
        (f"{{sha256: {DIGEST}}}", "{file: key, quota: {events: 5/s}}"),
        ("{env: SAME_KEY}", "{env: OTHER_NAME}"),
    ],
)
def test_pipes_do_not_share_a_write_key_however_it_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, first: str, second: str
) -> None:
    (tmp_path / "key").write_text(f"{KEY}\n")
    for name in ("SAME_KEY", "OTHER_NAME"):
        monkeypatch.setenv(name, KEY)
    (tmp_path / "a.yaml").write_text(GOOD.replace("{env: ORDERS_KEY}", first))
    text = GOOD.replace("pipe: orders", "pipe: other").replace("{env: ORDERS_KEY}", second)
    (problem,) = problems(tmp_path, text, "b.yaml")
    assert (problem.line, problem.where) == (3, "source.keys[0]")
    assert problem.message == "the pipe 'orders' has the same write key; give each its own"
    pipes = [
        Pipe.model_validate(
            {
                "pipe": name,
                "source": {
                    "keys": [YAML(typ="safe").load(key.replace("file: key", f"file: {tmp_path}/key"))]
                },
                "destinations": [{"name": "d", "url": "https://shop.example/"}],
            }
        )
        for name, key in (("orders", first), ("other", second))
    ]
    for new_pipes, current_pipes in ((pipes, []), (pipes[1:], pipes), (pipes[1:], pipes[:1])):
        with pytest.raises(Misconfigured) as refusal:
            require_keys_of_their_own(new_pipes, current_pipes)
        assert str(refusal.value).startswith(
            "no pipe was published:\n  other: source.keys.0: the pipe 'orders' "
        )
        assert KEY not in str(refusal.value)
        assert DIGEST not in str(refusal.value)
    require_keys_of_their_own(pipes[:1], pipes[:1])


def test_a_key_that_is_not_granted_is_not_compared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An answer would tell whether a guess is right."""
    (tmp_path / "key").write_text(KEY)
    monkeypatch.setenv("HIFI_PIPES_SECRET_FOLDERS", str(tmp_path))
    pipes = [
        Pipe.model_validate(
            {
                "pipe": name,
                "source": {"keys": [key]},
                "destinations": [{"name": "d", "url": "https://shop.example/"}],
            }
        )
        for name, key in (("orders", {"file": str(tmp_path / "key")}), ("other", {"sha256": DIGEST}))
    ]
    require_keys_of_their_own(pipes, [])
    monkeypatch.setenv("HIFI_PIPES_SECRET_GRANTS", f"orders={tmp_path / 'key'}")
    with pytest.raises(Misconfigured, match="same write key"):
        require_keys_of_their_own(pipes, [])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ("pipe: a\nsource: \x00", 2, "not YAML: the character U+0000 is not allowed"),
        ("pipe: !!bool x", 1, "not YAML: 'x' is no value of its tag"),
        ("a: 2001-99-99", 1, "not YAML: month must be in 1..12"),
        ("[" * 1500, 1, "not YAML: it is nested too deeply"),
        ("pipe: " + "9" * 5000, 1, "not YAML: a number has more than 4,300 digits; write it as text"),
    ],
)
def test_a_file_that_is_no_yaml_is_one_problem_at_its_line(
    tmp_path: Path, text: str, line: int, message: str
) -> None:
    [problem] = problems(tmp_path, text)
    assert problem.line == line
    assert problem.message.startswith(message)


@pytest.mark.parametrize(
    ("declared", "where", "message"),
    [
        (
            "retry: {max_age: .inf}",
            "destinations[0].retry.max_age",
            "inf is not allowed; write a finite number",
        ),
        ("rate: .nan", "destinations[0].rate", "nan is not allowed"),
        (f"rate: {'9' * 400}/s", "destinations[0].rate", "finite number"),
    ],
)
def test_a_number_that_records_cannot_hold_is_refused(
    tmp_path: Path, declared: str, where: str, message: str
) -> None:
    [problem] = problems(tmp_path, GOOD + f"    {declared}\n")
    assert (problem.line, problem.where) == (7, where)
    assert message in problem.message


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("123456789012345678.25", "a double has fewer digits and would be 1.2345678901234568e+17"),
        ("&a 0.10000000000000000000001", "a double has fewer digits and would be 0.1"),
        ("{a: [-1.00000000000000001]}", "a double has fewer digits"),
        ("2026-07-01T12:00:00.123456789Z", "a time without quotes"),
        ("2026-07-01 12:00:00", "a time without quotes"),
        ("!!binary aGk=", "JSON has no value of the type bytes"),
        ("!!set {a, b}", "JSON has no value of the type CommentedSet"),
        ("{1.10: a}", "the key 1.1 is no text"),
        ("{true: a}", "the key True is no text"),
    ],
)
def test_a_constant_that_would_become_another_value_is_refused(
    tmp_path: Path, value: str, message: str
) -> None:
    [problem] = problems(tmp_path, f"{GOOD}normalize:\n  fields:\n    a: {{default: {value}}}\n")
    assert (problem.line, message in problem.message) == (9, True), problem


@pytest.mark.parametrize(
    ("value", "constant"),
    [
        ("&a true", True),
        ("[&a false, *a]", [False, False]),
        ("0.30000000000000004", 0.30000000000000004),
        ("-1.50e-3", -0.0015),
        ("!!float 1", 1.0),
        ("2026-07-01", "2026-07-01"),
        ("!!str 5", "5"),
        ("{200: a}", {"200": "a"}),
    ],
)
def test_a_constant_is_the_value_that_is_written(tmp_path: Path, value: str, constant: object) -> None:
    assert problems(tmp_path, f"{GOOD}normalize:\n  fields:\n    a: {{default: {value}}}\n") == []
    rule = (load(tmp_path)[0][0].pipe.normalize.fields or {})["a"]
    assert isinstance(rule, MapRule)
    assert repr(rule.default) == repr(constant)


def test_a_default_beyond_64_bits_is_refused(tmp_path: Path) -> None:
    text = GOOD + "normalize: {fields: {id: {default: 18446744073709551616}}}\n"
    [problem] = problems(tmp_path, text)
    assert problem.where == "normalize.fields.id.default"
    assert "write a whole number from -9223372036854775808 to 18446744073709551615" in problem.message


def test_only_files_of_secrets_become_absolute_paths(tmp_path: Path) -> None:
    text = """\
pipe: orders
source: {keys: [{file: orders.key}]}
normalize:
  schema: {enum: [{file: x}]}
  fields: {file: attachment.name}
  mask: {mail: {hash: {file: mask.key}}}
destinations:
  - {name: shop, url: "http://127.0.0.1:9/", headers: {file: abc}, signing: {file: signing.key}}
  - name: rows
    kind: postgres
    settings: {url: {file: rows.url}, table: a.b, columns: {file: attachment.name}, mode: append}
"""
    assert problems(tmp_path, text) == []
    declared = load(tmp_path)[0][0].pipe.model_dump(mode="json", by_alias=True, exclude_defaults=True)
    shop, rows = declared["destinations"]
    assert declared["source"]["keys"] == [{"file": f"{tmp_path}/orders.key"}]
    assert declared["normalize"]["schema"] == {"enum": [{"file": "x"}]}
    assert declared["normalize"]["fields"]["file"] == "attachment.name"
    assert declared["normalize"]["mask"]["mail"]["hash"] == {"file": f"{tmp_path}/mask.key"}
    assert (shop["headers"], shop["signing"]) == ({"file": "abc"}, {"file": f"{tmp_path}/signing.key"})
    assert rows["settings"]["url"] == {"file": f"{tmp_path}/rows.url"}
    assert rows["settings"]["columns"] == {"file": "attachment.name"}


@pytest.mark.parametrize("settings", ['{"\\ud957\\udca6": []}', '{a: {b: ["\\ud83d"]}}'])
def test_a_surrogate_is_refused_wherever_it_is(tmp_path: Path, settings: str) -> None:
    [problem] = problems(tmp_path, GOOD.replace("url:", f"kind: o\n    settings: {settings}\n    url:"))
    assert (problem.line, problem.message) == (
        7,
        "a text has a surrogate, such as \\ud83d; write the character itself",
    )
    assert problem.where.startswith("destinations[0].settings")


def test_the_path_of_a_problem_can_be_written_whatever_a_key_is(tmp_path: Path) -> None:
    key_problem, number_problem = problems(tmp_path, GOOD + '"\\ud83d": 1' + "0" * 30 + "\n")
    assert "surrogate" in key_problem.message
    assert (number_problem.line, number_problem.where) == (7, "\\ud83d")
