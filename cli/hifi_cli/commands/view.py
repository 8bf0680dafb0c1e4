"""hifi view: the rows of a view, of both colours where a stream has them."""

from datetime import UTC
from typing import Annotated, Final

import typer
from rich.markup import escape

from hifi.runtime.errors import Misconfigured
from hifi_cli.commands.query import print_result
from hifi_cli.commands.wait import duration_of, moment_of
from hifi_cli.display.console import errors
from hifi_cli.error_reporting import report_errors
from hifi_cli.mesh_state.target import view_urls
from hifi_cli.options import DEFAULT_DATA, AsJson, Data, Wide
from hifi_cli.query.view_rows import merged, query, read_rows

_MOST_READ: Final = 200_000
_MOST_ROWS: Final = 1000
_QUERY_S: Final = 30.0


@report_errors
def view(
    name: Annotated[str, typer.Argument(metavar="VIEW", help="Name of the view.")],
    sql: Annotated[
        str, typer.Argument(metavar="SQL", help="One SELECT, in SQLite's SQL. Default: all rows.")
    ] = "",
    key: Annotated[
        str,
        typer.Option("--key", envvar="HIFI_VIEW_KEY", metavar="KEY", help="Read key of the view."),
    ] = "",
    url: Annotated[
        list[str] | None,
        typer.Option(
            "--url",
            metavar="URL",
            help="Address of view; one for each colour. Default: the mesh in --data, or both of its colours.",
        ),
    ] = None,
    until: Annotated[
        str | None,
        typer.Option(
            "--until",
            metavar="TIME",
            help="Wait until all that was accepted before is in it: a time, or `now`.",
        ),
    ] = None,
    duration: Annotated[
        str, typer.Option("--within", metavar="DURATION", help="Longest wait, such as 90s or 2m.")
    ] = "1m",
    row_limit: Annotated[
        int, typer.Option("--most", metavar="COUNT", min=1, help="Most rows of the view that are read.")
    ] = _MOST_READ,
    rows: Annotated[
        int, typer.Option("--rows", metavar="COUNT", min=1, help="Most rows that are shown.")
    ] = _MOST_ROWS,
    data: Data = DEFAULT_DATA,
    *,
    wide: Wide = False,
    as_json: AsJson = False,
) -> None:
    """Show the rows of a view, or what SQL makes of them.

    Of a stream with two colours it shows one table: of each key the event that
    was accepted last or, in a view with `order: time`, has the latest time.

    Examples:
      HIFI_VIEW_KEY=... hifi view flights-now
      hifi view flights-now "select carrier, count(*) from flights_now group by 1"
      hifi view flights-now --until now --json
    """
    if not key:
        raise Misconfigured("the read key of the view is missing: give --key, or set HIFI_VIEW_KEY")
    within_s = duration_of(duration)
    until_time = (
        None if until is None else moment_of(until).astimezone(UTC).isoformat().replace("+00:00", "Z")
    )
    answers = {
        address: read_rows(address, key, name, at_least=until_time, within_s=within_s, row_limit=row_limit)
        for address in view_urls(data, url or [])
    }
    merged_rows = merged(answers)
    result = query(merged_rows, name.replace("-", "_"), sql, rows=rows, within_s=_QUERY_S)
    print_result(result, wide=wide, as_json=as_json)
    if result.more:
        errors.print(f"these are the first {rows:,} rows; --rows shows more", highlight=False)
    complete = merged_rows.complete_until or "an unknown time"
    errors.print(f"complete until {escape(complete)}", highlight=False)
