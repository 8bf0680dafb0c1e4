"""The reference pages, made from the models that they describe: `python -m hifi_cli.reference DOCS`."""

import importlib
import sys
import types
import typing
from collections.abc import Iterator, Mapping
from enum import Enum
from pathlib import Path
from typing import Any, Final

import orjson
from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from hifi.pipe.model import Pipe
from hifi.settings import ServiceSettings, StreamSettings
from hifi_infra.mesh.plan import FLOW

MADE: Final = "<!-- Made by `python -m hifi_cli.reference docs`; change the model, not this page. -->\n\n"
_PIPES_INTRO: Final = """\
One YAML file a pipe. Unknown keys are errors. `hifi check DIR` says what is wrong, with file and line; editors complete
keys with the JSON Schema beside this page, for a file that begins with
`# yaml-language-server: $schema=…/docs/pipe.schema.json`.

Durations are written `250ms`, `10s`, `2m`, `24h`, `30d`; rates `500/s`, `90/m`, `1000/h`. Paths into the data have
dots: `address.city`. Secrets are named, never written: `{env: NAME}` or `{file: path}`.
"""
_SETTINGS_INTRO: Final = """\
Each service is configured by environment variables. A wrong value ends it with exit status 2 and a message that names
the variable. `hifi up` sets what it must and passes the rest of its own environment on.
"""
_RUNBOOKS_INTRO: Final = """\
The console of observe serves the same at `/runbooks`, so it is at hand offline. In commands PIPE, MINUTE, SERVICE and the
like stand for what the alarm names.
"""
_NAMES: Final = {
    "Seconds": "duration",
    "PerSecond": "rate",
    "str": "text",
    "int": "whole number",
    "float": "number",
    "bool": "true or false",
    "Path": "path",
    "HttpUrl": "URL",
    "Any": "any JSON",
    "NoneType": "",
}


def pages() -> dict[str, str]:
    """File name in `docs/` to its text."""
    return {
        "pipe.schema.json": pipe_schema(),
        "pipes.md": pipes_page(),
        "runbooks.md": runbooks_page(),
        "settings.md": settings_page(),
    }


def runbooks_page() -> str:
    """What to do about each kind of alarm; the console serves the same at `/runbooks`."""
    runbooks = importlib.import_module("hifi_observe.alarms.runbooks")
    return f"# Runbooks: what to do about an alarm\n\n{MADE}{_RUNBOOKS_INTRO}\n{runbooks.markdown()}"


def pipe_schema() -> str:
    """The JSON Schema of a pipe's YAML file, for editors."""
    schema = {"$schema": "https://json-schema.org/draft/2020-12/schema"} | Pipe.model_json_schema(
        by_alias=True
    )
    return orjson.dumps(schema, option=orjson.OPT_INDENT_2).decode() + "\n"


def pipes_page() -> str:
    """Every key of a pipe's YAML file."""
    parts = ["# Pipes: reference\n\n", MADE, _PIPES_INTRO]
    for model in _models(Pipe):
        parts.append(f"\n## {model.__name__}\n\n{_summary(model)}\n\n")
        parts.append("| Key | Value | Default | Meaning |\n|---|---|---|---|\n")
        parts += [_row(name, field) for name, field in model.model_fields.items()]
    parts.append("\n## Words with a fixed choice\n\n")
    parts += [f"- **{kind.__name__}**: {_choices(kind)}. {_summary(kind)}\n" for kind in _enums(Pipe)]
    return "".join(parts)


def settings_page() -> str:
    """Every environment variable of every service."""
    parts = ["# Settings: reference\n\n", MADE, _SETTINGS_INTRO]
    shared = dict(ServiceSettings.model_fields)
    parts.append(f"\n## Every service\n\n{_variables(shared)}")
    for service in FLOW:
        own = {
            name: field
            for name, field in _settings(service).model_fields.items()
            if name not in shared or _variable(name, field) != _variable(name, shared[name])
        }
        table = _variables(own) if own else "Nothing beyond that.\n"
        parts.append(f"\n## {service}\n\n{table}")
    return "".join(parts)


def _settings(service: str) -> type[StreamSettings]:
    try:
        module = importlib.import_module(f"hifi_{service}.settings")
    except ModuleNotFoundError:
        return ServiceSettings
    own = [
        value
        for value in vars(module).values()
        if isinstance(value, type)
        and issubclass(value, ServiceSettings)
        and value.__module__ == module.__name__
    ]
    return own[0] if own else ServiceSettings


def _variables(fields: Mapping[str, FieldInfo]) -> str:
    rows = [_variable(name, field) for name, field in fields.items()]
    return "".join(["| Variable | Value | Default | Meaning |\n|---|---|---|---|\n", *rows])


def _variable(name: str, field: FieldInfo) -> str:
    default = "host and process id" if field.default_factory else _default(field)
    return f"| `HIFI_{name.upper()}` | {_kind(field.annotation)} | {default} | {_cell(field.description)} |\n"


def _models(root: type[BaseModel]) -> Iterator[type[BaseModel]]:
    """The model and those that it is made of, each once, in reading order."""
    found: dict[type[BaseModel], None] = {}

    def visit(model: type[BaseModel]) -> None:
        if model in found:
            return
        found[model] = None
        for field in model.model_fields.values():
            for part in _parts(field.annotation):
                if isinstance(part, type) and issubclass(part, BaseModel):
                    visit(part)

    visit(root)
    return iter(found)


def _enums(root: type[BaseModel]) -> Iterator[type[Enum]]:
    found: dict[type[Enum], None] = {}
    for model in _models(root):
        for field in model.model_fields.values():
            found |= {
                part: None
                for part in _parts(field.annotation)
                if isinstance(part, type) and issubclass(part, Enum)
            }
    return iter(found)


def _parts(annotation: Any) -> Iterator[Any]:
    yield annotation
    for argument in typing.get_args(annotation):
        yield from _parts(argument)


def _row(name: str, field: FieldInfo) -> str:
    return f"| `{field.alias or name}` | {_kind(_declared(field))} | {_default(field)} | {_cell(field.description)} |\n"


def _declared(field: FieldInfo) -> Any:
    """The annotation with what pydantic has taken apart of it: a pattern tells a duration from a number."""
    return typing.Annotated[field.annotation, *field.metadata] if field.metadata else field.annotation


def _kind(annotation: Any) -> str:
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is typing.Annotated:
        return _annotated(annotation, arguments)
    if origin is typing.Literal:
        return " or ".join(f"`{value}`" for value in arguments)
    if origin in (typing.Union, types.UnionType):
        return " or ".join(dict.fromkeys(kind for kind in map(_kind, arguments) if kind))
    if origin in (list, tuple):
        return f"list of {_kind(arguments[0])}"
    if origin is dict:
        return f"map of {_kind(arguments[0])} to {_kind(arguments[1])}"
    return _class(annotation)


def _class(annotation: Any) -> str:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return f"[{annotation.__name__}](#{annotation.__name__.lower()})"
    if isinstance(annotation, type) and issubclass(annotation, Enum):
        return f"[{annotation.__name__}](#words-with-a-fixed-choice)"
    name = getattr(annotation, "__name__", str(annotation))
    return _NAMES.get(name, name)


def _annotated(annotation: Any, arguments: tuple[Any, ...]) -> str:
    functions = {getattr(getattr(one, "func", None), "__name__", "") for one in arguments[1:]}
    if "seconds" in functions:
        return "duration"
    if "per_second" in functions:
        return "rate"
    return _kind(annotation.__origin__)


def _choices(kind: type[Enum]) -> str:
    return ", ".join(f"`{one.value}`" for one in kind)


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "required"
    value = field.default
    if value is None or value is PydanticUndefined or value in ("", [], {}, ()):
        return ""
    if isinstance(value, BaseModel):
        return "see there"
    if _kind(_declared(field)) == "duration":
        return f"`{_duration(value)}`"
    return f"`{_text(value)}`"


def _duration(value_s: float) -> str:
    """As people write it in a pipe: the largest unit that it is a whole number of."""
    for unit, length_s in (("d", 86400), ("h", 3600), ("m", 60), ("s", 1)):
        if value_s >= length_s and value_s % length_s == 0:
            return f"{value_s / length_s:.0f}{unit}"
    return f"{value_s * 1000:g}ms"


def _text(value: Any) -> str:
    if isinstance(value, Enum):
        return str(value.value)
    if isinstance(value, list | tuple):
        return ", ".join(_text(one) for one in value)
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return f"{value:g}" if abs(value) < 1e6 else f"{value:.0f}"
    return str(getattr(value, "name", value))


def _summary(kind: type) -> str:
    return " ".join((kind.__doc__ or "").split())


def _cell(text: str | None) -> str:
    return (text or "").replace("|", "\\|").replace("\n", " ")


def main() -> None:
    """Write the pages into the folder that is named."""
    folder = Path(sys.argv[1])
    for name, text in pages().items():
        (folder / name).write_text(text)


if __name__ == "__main__":
    main()
