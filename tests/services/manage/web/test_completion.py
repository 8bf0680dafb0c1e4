"""The keys that the editor offers at the cursor, in a real browser."""

from importlib import resources

from tests.support.browser import needs_browser, page_without_errors

from hifi_manage.web.operations import PIPE_SCHEMA

SCRIPT = (resources.files("hifi_manage.web") / "static" / "completion.js").read_text("utf-8")
pytestmark = needs_browser
HEAD = "pipe: a\nsource:\n  keys:\n    - env: K\n"
COMPLETIONS = [
    # Text up to the cursor, text after it, keys that are offered, keys that are not.
    ("", "", {"pipe", "source", "destinations"}, {"url"}),
    (HEAD, "", {"normalize", "destinations"}, {"pipe", "source", "env"}),
    (HEAD + "norm", "", {"normalize"}, {"destinations"}),
    ("pipe: a\nsource:\n  ", "", {"keys", "mask"}, {"pipe", "env"}),
    (HEAD + "      ", "", {"quota"}, {"env", "keys"}),
    (HEAD + "destinations:\n  - name: x\n    ", "", {"url", "retry", "headers"}, {"name", "pipe"}),
    (HEAD + "destinations:\n- name: x\n  ", "", {"url", "retry"}, {"name", "pipe"}),
    (HEAD + "destinations:\n  - ", "", {"name", "url"}, {"pipe"}),
    (
        HEAD + "destinations:\n  - name: x\n    url: http://x/\n  - name: y\n    ",
        "",
        {"url", "transform"},
        {"name"},
    ),
    (
        HEAD + "destinations:\n  - name: x\n    retry:\n      ",
        "    url: http://x/\n",
        {"max_attempts", "also"},
        {"url"},
    ),
    (HEAD + "destinations:\n  - name: x\n    ", "\n    url: http://x/\n", {"retry"}, {"name", "url"}),
    (HEAD + "slo:\n  p95: ", "", set(), {"loss", "p95"}),
]


async def test_the_keys_that_are_possible_at_the_cursor_are_offered() -> None:
    async with page_without_errors() as page:
        await page.add_script_tag(content=SCRIPT)
        for before, after, offered_keys, excluded_keys in COMPLETIONS:
            keys = await page.evaluate(
                "([schema, text, at]) => completions(schema, text, at).map(({ key }) => key)",
                [PIPE_SCHEMA, before + after, len(before)],
            )
            assert offered_keys <= set(keys), (before, keys)
            assert not excluded_keys & set(keys), (before, keys)
