"""hifi report: the availability of a month, signed, and the keys of the signature."""

import base64
import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Final
from urllib.parse import urlencode

import typer
from rich.markup import escape

from hifi.runtime.errors import HifiError, Misconfigured
from hifi.runtime.signed_document import (
    ALGORITHM,
    SIGNATURE,
    canonical,
    make_keys,
    read_public_key,
    verify_bytes,
    verify_envelope,
)
from hifi_cli.display.console import console, errors, visible
from hifi_cli.error_reporting import report_errors
from hifi_cli.mesh_state.observe_api import ObserveUrl
from hifi_cli.mesh_state.target import observe_api
from hifi_cli.options import DEFAULT_DATA, Data

REPORT: Final = "report"
app = typer.Typer(invoke_without_command=True)


class ReportFormat(StrEnum):
    """Formats of a report."""

    JSON = "json"
    HTML = "html"


@app.callback()
@report_errors
def report(
    context: typer.Context,
    month: Annotated[
        str,
        typer.Option(
            "--month",
            metavar="YYYY-MM",
            help="Month in UTC.",
            show_default="the last that has ended",
        ),
    ] = "",
    pipe: Annotated[str, typer.Option("--pipe", metavar="PIPE", help="Only this pipe.")] = "",
    owner: Annotated[
        str,
        typer.Option(
            "--owner",
            metavar="OWNER",
            help="Only pipes of this owner: e-mail address, webhook, or the host of the webhook.",
        ),
    ] = "",
    output: Annotated[ReportFormat, typer.Option("--format", help="Output format.")] = ReportFormat.JSON,
    output_file: Annotated[
        Path | None,
        typer.Option(
            "--out",
            metavar="FILE",
            dir_okay=False,
            help="File to write. The signature of HTML is written to FILE.sig.",
            show_default="standard output",
        ),
    ] = None,
    data: Data = DEFAULT_DATA,
    url: ObserveUrl = None,
) -> None:
    """Report on the availability of pipes in a month, with a signature.

    The report has nines, down and unknown minutes with reasons, and lost and late
    events by id. HTML is ready to be printed as PDF.

    Examples:
      hifi report --month 2026-10 --pipe orders --out orders.json
      hifi report --month 2026-10 --owner team@example.com --format html --out team.html
      hifi report verify team.html --public-key report-key.pem.pub
    """
    if context.invoked_subcommand is not None:
        return
    query = urlencode({"month": month, "pipe": pipe, "owner": owner})
    api = observe_api(data, url)
    signed_report = api.get(f"/api/v1/report?{query}")
    if output is ReportFormat.JSON:
        content, signature = canonical(signed_report), None
    else:
        content, headers = api.page(f"/report/document?{query}")
        signature = headers.get(SIGNATURE, "").removeprefix(f"{ALGORITHM} ") or None
    if output_file is None:
        typer.echo(visible(content.decode()) if sys.stdout.isatty() else content, nl=False)
    else:
        _write(output_file, content)
        _signature_file(output_file).unlink(missing_ok=True)
        if signature is not None:
            _write(_signature_file(output_file), f"{signature}\n".encode())
    if signed_report["signature"] is None:
        errors.print("The report is not signed: observe has no HIFI_OBSERVE_REPORT_KEY_FILE.")


@app.command()
@report_errors
def verify(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="A report: JSON, or HTML with FILE.sig beside it.")
    ],
    public_key: Annotated[
        str,
        typer.Option(
            "--public-key",
            metavar="KEY",
            help="PEM file of the public key, or its base64, from the operator.",
        ),
    ],
) -> None:
    """Check the signature of a report, without a mesh.

    Exit status: 0 if the report is as it was signed, 1 if it was changed or
    signed with another key.

    Examples:
      hifi report verify orders.json --public-key report-key.pem.pub
    """
    key = read_public_key(public_key)
    content, signature_file = _read(file), _signature_file(file)
    try:
        if signature_file.exists():
            verify_bytes(content, _read(signature_file).decode("ascii", "replace").removesuffix("\n"), key)
        elif content.lstrip().startswith(b"<"):
            raise ValueError(f"there is no {signature_file} with its signature")
        else:
            verify_envelope(content, REPORT, key)
    except ValueError as error:
        raise HifiError(
            f"{file} is not valid: {error}. Ask its author for a new copy and the public key"
        ) from None
    key_text = base64.b64encode(key.public_bytes_raw()).decode()
    console.print(f"{escape(str(file))} is as it was signed with the key {key_text}.", highlight=False)


@app.command()
@report_errors
def key(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="File for the private key, in PEM.")],
) -> None:
    """Make the key with which observe signs reports.

    Set HIFI_OBSERVE_REPORT_KEY_FILE of observe to FILE, and give FILE.pub to those
    who receive reports.

    Examples:
      hifi report key report-key.pem
    """
    public_file = make_keys(file)
    console.print(
        f"Set HIFI_OBSERVE_REPORT_KEY_FILE of observe to {escape(str(file))}; receivers of reports need "
        f"{escape(str(public_file))}.",
        highlight=False,
    )


def _signature_file(file: Path) -> Path:
    return file.with_name(f"{file.name}.sig")


def _read(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError as error:
        raise Misconfigured(f"{file} cannot be read: {error.strerror}") from None


def _write(file: Path, content: bytes) -> None:
    try:
        file.write_bytes(content)
    except OSError as error:
        raise Misconfigured(f"{file} cannot be written: {error.strerror}") from None
