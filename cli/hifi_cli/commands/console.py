"""hifi console: a link that opens the console signed in."""

from hifi.runtime.errors import HifiError
from hifi_cli.display.console import console
from hifi_cli.error_reporting import report_errors
from hifi_cli.mesh_state.observe_api import ObserveApi, ObserveUrl
from hifi_cli.mesh_state.target import observe_api
from hifi_cli.options import DEFAULT_DATA, Data


@report_errors
def console_link(data: Data = DEFAULT_DATA, url: ObserveUrl = None) -> None:
    """Print a link that opens the console signed in, once and within an hour.

    It signs in the principal of HIFI_TOKEN, or of the mesh in --data.

    Examples:
      hifi console
    """
    print(observe_api(data, url).sign_in_link())


def print_console_link(text: str, observe: ObserveApi) -> None:
    """Print a link that opens a console signed in; its plain address where none can be made."""
    try:
        link = observe.sign_in_link()
    except HifiError:
        link = observe.url
    console.print(f"{text} [bold]{link}[/]", highlight=False, soft_wrap=True)
