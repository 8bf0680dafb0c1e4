"""The console page of views. It has no data: its script asks the API with the read key that its reader enters."""

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from hifi.runtime.console.console_pages import ConsolePages, navigation


class ViewConsole:
    """Routes of the page.

    Args:
        observe_url: of observe's console; empty: there is none.
        manage_url: of manage's console; empty: there is none.
    """

    def __init__(self, observe_url: str, manage_url: str) -> None:
        links = navigation(observe_url or None, manage_url or None, None, view="")
        self._pages = ConsolePages("hifi_view.web", "view", links)

    def routes(self) -> list[Route]:
        """Routes of the page and of its static files."""
        return [Route("/", self.page), Route("/static/{file}", self.static)]

    async def page(self, _: Request) -> Response:
        """The views that a key opens, and the rows of one of them."""
        return self._pages.page("views.html", "Views", {})

    async def static(self, request: Request) -> Response:
        """Style sheets and scripts."""
        return self._pages.static(request.path_params["file"])
