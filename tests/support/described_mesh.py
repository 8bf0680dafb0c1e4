"""What a mesh on a folder says of itself, without the mesh."""

import os
from pathlib import Path
from typing import Any

from hifi_infra.mesh import running
from hifi_infra.mesh.running import RunningMesh


def describe(folder: Path, **changes: Any) -> None:
    """Write the description of a mesh that this process runs.

    Args:
        folder: of the mesh's data; made if it is missing.
        changes: fields of `RunningMesh` that differ.
    """
    folder.mkdir(exist_ok=True)
    fields = {
        "pid": os.getpid(),
        "created": running.created(os.getpid()),
        "stream": "s",
        "kafka": "127.0.0.1:9",
        "brokers": 1,
        "url": "http://127.0.0.1:9",
        "trigger": "auto",
    }
    running.state_file(folder).write_text(RunningMesh(**fields | changes).model_dump_json())
