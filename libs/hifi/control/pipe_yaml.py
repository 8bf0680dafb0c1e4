"""Pipes as YAML for people, and the differences between them. Pure."""

import difflib
import io

from ruamel.yaml import YAML

from hifi.control.declaration import declared_body
from hifi.pipe.model import Pipe


def pipe_yaml(pipe: Pipe | None) -> str:
    """The YAML of a pipe with the keys that were declared, without comments; empty: no pipe."""
    if pipe is None:
        return ""
    output = io.StringIO()
    yaml = YAML(typ="safe", pure=True)
    yaml.default_flow_style = False
    yaml.sort_base_mapping_type_on_output = False  # type: ignore[assignment]  # ruamel declares it as None
    yaml.dump(declared_body(pipe), output)
    return output.getvalue()


def difference(before: Pipe | None, after: Pipe | None, before_name: str, after_name: str) -> str:
    """The changes from one pipe to another, as a unified diff; empty: nothing."""
    old_lines, new_lines = (
        pipe_yaml(before).splitlines(keepends=True),
        pipe_yaml(after).splitlines(keepends=True),
    )
    lines = difflib.unified_diff(old_lines, new_lines, before_name, after_name)
    return "".join(line if line.endswith("\n") else f"{line}\n" for line in lines)
