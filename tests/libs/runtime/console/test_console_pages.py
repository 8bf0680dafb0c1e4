"""Parts that the consoles share."""

import pytest

from hifi.runtime.console.console_pages import ConsolePages, navigation
from hifi.runtime.http.problem import Problem


def test_the_navigation_links_to_the_other_console_only_where_it_is_configured() -> None:
    own_links = [link.href for link in navigation("", None, "/openapi.json")]
    assert own_links == ["/", "/alarms", "/control", "/report", "/runbooks", "/openapi.json"]
    links_by_title = {
        link.label: link.href for link in navigation("https://observe.example.com/", "", "/api/openapi.json")
    }
    assert (links_by_title["Alarms"], links_by_title["Audit"]) == (
        "https://observe.example.com/alarms",
        "/audit",
    )
    assert "Views" not in links_by_title
    views = navigation(None, None, None, "https://views.example.com/")
    assert [(link.label, link.href) for link in views] == [("Views", "https://views.example.com/")]


@pytest.mark.parametrize("name", ["../console_pages.py", "..", "frame.html", "missing.js", ""])
def test_static_files_are_those_of_the_folders_only(name: str) -> None:
    pages = ConsolePages("hifi_manage.web", "manage", navigation(None, "", "/openapi.json"))
    assert pages.static("frame.css").status_code == 200
    with pytest.raises(Problem):
        pages.static(name)
