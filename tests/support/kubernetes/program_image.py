"""An image of one static program, as an archive in Docker's format."""

import hashlib
import io
import json
import tarfile
from pathlib import Path


def write_image(program: Path, name: str, archive: Path) -> None:
    """Write the archive of an image whose only file and entry point is a program."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as layer:
        entry = tarfile.TarInfo(program.name)
        entry.size, entry.mode = program.stat().st_size, 0o755
        with program.open("rb") as file:
            layer.addfile(entry, file)
    content = buffer.getvalue()
    digest = hashlib.sha256(content).hexdigest()
    configuration = json.dumps(
        {
            "architecture": "amd64",
            "os": "linux",
            "config": {"Entrypoint": [f"/{program.name}"]},
            "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest}"]},
        }
    ).encode()
    file_name = f"{hashlib.sha256(configuration).hexdigest()}.json"
    manifest = [{"Config": file_name, "RepoTags": [name], "Layers": [f"{digest}.tar"]}]
    with tarfile.open(archive, "w") as image:
        for entry_name, data in (
            (f"{digest}.tar", content),
            (file_name, configuration),
            ("manifest.json", json.dumps(manifest).encode()),
        ):
            entry = tarfile.TarInfo(entry_name)
            entry.size = len(data)
            image.addfile(entry, io.BytesIO(data))
