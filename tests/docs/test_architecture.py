"""The pages on the architecture lead a reader to files that exist, and leave out no folder and no topic."""

import re
from pathlib import Path

import pytest

from hifi.kafka.topics import ControlTopics, Tier, Topics
from hifi_cli.reference.packages import packages
from hifi_cli.reference.topic_tables import stream_topics_table

ROOT = Path(__file__).parents[2]
TOP = "libs|connectors|services|infra|cli|tests|bench|docs|examples|requirements"
PATH = re.compile(rf"`((?:{TOP})/[\w./-]*)`")
PAGES = {
    name: (ROOT / "docs" / name).read_text("utf-8")
    for name in ("architecture.md", "event-lifecycle.md", "first-change.md", "topics.md")
}
PATHS = sorted({(page, path) for page, text in PAGES.items() for path in PATH.findall(text)})
LOOKUPS = [
    row
    for heading in ("Where to start", "Lookups")
    for row in re.findall(
        r"^\| (?!---)(.+) \|$",
        PAGES["architecture.md"].partition(f"\n## {heading}\n")[2].partition("\n## ")[0],
        re.MULTILINE,
    )[1:]
]
STEPS = re.findall(r"^\| (\d+ \| .+) \|$", PAGES["event-lifecycle.md"], re.MULTILINE)


@pytest.mark.parametrize(("page", "path"), PATHS)
def test_every_path_on_a_page_exists(page, path):
    file_path = ROOT / path
    assert file_path.is_dir() if path.endswith("/") else file_path.is_file()


def test_each_row_of_the_lookups_and_each_step_of_an_event_leads_to_a_path():
    assert len(LOOKUPS) > 30
    assert len(STEPS) == 12
    for row in LOOKUPS + STEPS:
        assert PATH.search(row), row


def test_the_page_leaves_out_no_folder_with_modules():
    modules = (
        file
        for top in ("libs", "connectors", "services", "infra", "cli")
        for file in (ROOT / top).rglob("*.py")
    )
    folders = {
        f"{file.parent.relative_to(ROOT).as_posix()}/"
        for file in modules
        if not {"build", ".venv"} & set(file.parts)
    }
    services = {package.folder for package in packages() if package.service}
    missing_folders = [
        folder
        for folder in folders - services
        if not folder.startswith(("infra/docker/", "infra/helm/"))
        and f"`{folder}`" not in PAGES["architecture.md"]
    ]
    assert missing_folders == []
    for folder in services:
        assert f"| `{folder.split('/')[1]}` |" in PAGES["architecture.md"]


def test_every_package_says_in_a_sentence_what_is_in_it():
    assert [package.folder for package in packages() if not re.fullmatch(r"\S.*\.", package.summary)] == []


def test_the_page_leaves_out_no_topic():
    topics = [*Topics("S", (Tier("<delay>", 1),)).all(), *ControlTopics("S").all()]
    rows = re.findall(r"^\| `(\S+)` \|(?= \S.* \|$)", PAGES["topics.md"], re.MULTILINE)
    assert {topic.name.removeprefix("S.") for topic in topics} <= set(rows)


def test_writers_and_readers_of_a_topic_are_those_that_kafka_lets():
    rows = {
        row.split(" | ")[0].strip("| `"): row.split(" | ")[2:4] for row in stream_topics_table().splitlines()
    }
    assert rows["enriched"] == ["enrich", "enrich, egest, lake, state, view, scale, colours"]
    assert rows["retry-in.<delay>"] == ["egest", "egest, retrier"]
    assert rows["minutes"] == ["observe", "observe, operator"]
    assert rows["enrich-leader"] == ["nobody", "enrich"]
