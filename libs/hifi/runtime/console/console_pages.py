"""Renders the pages of a console inside the frame that all consoles share, and serves their static files."""

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any, Final

import jinja2
from starlette.responses import FileResponse, HTMLResponse, Response

from hifi.runtime.http.problem import Problem

_FRAME: Final = "hifi.runtime.console"
_MEDIA_TYPES: Final = {".css": "text/css", ".js": "text/javascript"}
_OBSERVE_LINKS: Final = (
    ("/", "Pipes"),
    ("/alarms", "Alarms"),
    ("/control", "Control"),
    ("/report", "Report"),
    ("/runbooks", "Runbooks"),
)
_VIEW_LINKS: Final = (("/", "Views"),)
_MANAGE_LINKS: Final = (
    ("/", "Declarations"),
    ("/principals", "Principals"),
    ("/audit", "Audit"),
)


@dataclass(frozen=True, slots=True)
class Link:
    """A link of the navigation; the page with the title `label` is marked as the current one."""

    href: str
    label: str


def navigation(
    observe: str | None, manage: str | None, api: str | None, view: str | None = None
) -> tuple[Link, ...]:
    """The links in the header of every page.

    Args:
        observe: URL of observe's console, without a slash at its end; empty: this console; None: there is none.
        manage: the same of manage's console.
        api: path of this service's OpenAPI document; None: there is none.
        view: the same as `observe`, of view's console.
    """
    links = [
        Link(url.rstrip("/") + path, label)
        for url, paths in ((observe, _OBSERVE_LINKS), (view, _VIEW_LINKS), (manage, _MANAGE_LINKS))
        if url is not None
        for path, label in paths
    ]
    return (*links, *([] if api is None else [Link(api, "API")]))


class ConsolePages:
    """Templates and static files of one console, which are found before those of the frame.

    Args:
        package: has the folders `pages` (Jinja templates, which extend `frame.html`) and `static`.
        service: its name, for messages.
        links: of the navigation.
        styles: sources of styles beside this server, for the content security policy.
        filters: of the templates.
    """

    def __init__(
        self,
        package: str,
        service: str,
        links: tuple[Link, ...],
        styles: str = "",
        filters: Mapping[str, Any] | None = None,
    ) -> None:
        self._folders = [Path(str(resources.files(name))) / "static" for name in (package, _FRAME)]
        self._templates = jinja2.Environment(
            loader=jinja2.ChoiceLoader([jinja2.PackageLoader(name, "pages") for name in (package, _FRAME)]),
            autoescape=True,
            trim_blocks=True,
            lstrip_blocks=True,
            undefined=jinja2.StrictUndefined,
        )
        self._templates.filters |= filters or {}
        self._templates.globals |= {"service": service, "links": links}
        self.headers = {
            "content-security-policy": f"default-src 'self'; style-src 'self'{styles and ' ' + styles}; "
            "img-src 'self' data: blob:; object-src 'none'; base-uri 'none'; form-action 'self'; "
            "frame-ancestors 'none'",
            "x-content-type-options": "nosniff",
            "referrer-policy": "same-origin",  # with no-referrer browsers send forms without their origin
            "cache-control": "no-store",
        }

    def page(
        self,
        template: str,
        title: str,
        values: Mapping[str, Any],
        counts: Mapping[str, int] | None = None,
        status: int = 200,
        account: str = "",
    ) -> Response:
        """A page.

        Args:
            template: its file.
            title: its heading.
            values: of the template.
            counts: label of a link to the number of things there that need attention.
            status: of the response.
            account: who has signed in; empty: nobody.
        """
        frame = {"title": title, "counts": counts or {}, "account": account}
        return HTMLResponse(self.rendered(template, {**values, **frame}), status, headers=self.headers)

    def rendered(self, template: str, values: Mapping[str, Any]) -> str:
        """The text that a template makes of values."""
        return self._templates.get_template(template).render(values)

    def static(self, name: str) -> Response:
        """A style sheet or script.

        Args:
            name: of the file.

        Raises:
            Problem: 404, there is none.
        """
        for folder in self._folders:
            file = folder / name
            if file.parent == folder and file.suffix in _MEDIA_TYPES and file.is_file():
                headers = {"cache-control": "no-cache", "x-content-type-options": "nosniff"}
                return FileResponse(file, media_type=_MEDIA_TYPES[file.suffix], headers=headers)
        raise Problem(404, f"There is no static file {name!r}.", title="No such file")
