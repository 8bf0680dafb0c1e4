"""Rules on the texts of a pipe. Pure.

A pipe is input. Libraries replace `${…}` (Spark, Kafka Connect), open `file:` URLs, and end a line or a text at control
characters. `StrictModel` judges every text of a pipe by these rules, so `hifi check`, publication and each service that
reads the pipe judge it the same. A field whose text is no single line says so with its form.
"""

import ipaddress
import re
from collections.abc import Iterator, Mapping
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, Final

from pydantic import AfterValidator, BaseModel, StringConstraints


class TextForm(Enum):
    """The form of the texts of a field. Without one it is `LINE`."""

    LINE = "line"
    """One line, without `${` and `file:`."""
    SQL = "sql"
    """Lines that Spark parses, without `${`, which Spark replaces by settings and variables."""
    LINES = "lines"
    """Lines in which nothing is replaced."""
    DATA = "data"
    """Any text: it is compared or written, and no library interprets it."""


_LINE_BREAKS: Final = frozenset("\n\r\t")
_FILE_URL: Final = re.compile(r"(?<![A-Za-z0-9_-])file:", re.IGNORECASE)
_HOST: Final = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9._-]{0,252}[A-Za-z0-9_.])?")
_SERVER: Final = r"(?:[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\]):[0-9]{1,5}"


def _host_name(text: str) -> str:
    if not _HOST.fullmatch(text):
        try:
            ipaddress.IPv6Address(text)
        except ValueError:
            raise ValueError(
                f"{text!r} is not a host name or an address, without port and brackets"
            ) from None
    return text


HostName = Annotated[str, AfterValidator(_host_name)]
"""Host name or address, without port and brackets."""
BootstrapServers = Annotated[str, StringConstraints(pattern=rf"^{_SERVER}(,{_SERVER})*$", max_length=4096)]
"""`HOST:PORT,…`."""
DatabaseName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.$-]{0,62}$")]
"""Name of a database; JDBC reads options after `?`."""


def refuse_texts(value: Any, text_form: TextForm) -> str | None:
    """Why a value of a pipe is refused for one of its texts; None: it is not.

    Args:
        value: of a field; lists, maps and models that judge no text themselves are searched.
        text_form: of its texts.
    """
    return next((reason for text in _texts(value) if (reason := refuse_text(text, text_form))), None)


def refuse_text(text: str, text_form: TextForm = TextForm.LINE) -> str | None:
    """Why a text is refused; None: it is not."""
    if text_form is TextForm.DATA:
        return None
    allowed_breaks = frozenset() if text_form is TextForm.LINE else _LINE_BREAKS
    if control := next(
        (character for character in text if _is_control(character) and character not in allowed_breaks), None
    ):
        return f"{_quoted(text)} has the control character {control!a}; remove it"
    if text_form in (TextForm.LINE, TextForm.SQL) and "${" in text:
        return f"{_quoted(text)} has `${{`, which nothing may replace here; write the value itself, or name a secret"
    if text_form is TextForm.LINE and _FILE_URL.search(text):
        return f"{_quoted(text)} has `file:`; no file is read here"
    return None


def refuse_remote_file(file: Path) -> str | None:
    """Why a file of another machine may not be named, where this one cannot judge links; None: it may."""
    if re.fullmatch(r"(/[A-Za-z0-9_-][A-Za-z0-9._-]*)+", str(file)):
        return None
    return f"{file} is not an absolute path of letters, digits, `.`, `_` and `-`"


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Path):
        yield str(value)
    elif isinstance(value, Mapping):
        for key, member in value.items():
            yield from _texts(key)
            yield from _texts(member)
    elif isinstance(value, list | tuple | set | frozenset):
        for member in value:
            yield from _texts(member)
    elif isinstance(value, BaseModel) and not getattr(type(value), "judges_texts", False):
        for name in type(value).model_fields:
            yield from _texts(getattr(value, name))


def _is_control(character: str) -> bool:
    code = ord(character)
    return code < 0x20 or 0x7F <= code < 0xA0 or code in (0x2028, 0x2029)


def _quoted(text: str) -> str:
    return ascii(text if len(text) <= 60 else text[:60] + "…")
