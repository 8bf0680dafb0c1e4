"""`make fuzz`: atheris changes the files of the corpus for ten minutes for each decoder, guided by the code they reach.

    python -m tests.fuzz [NAME …] [--seconds 600]

New inputs that reach new code are kept in build/fuzz/NAME; an input at which a decoder fails is `failed-…` there and
ends the run of that decoder with status 1. Put it into tests/fuzz/corpus/NAME with the correction.
"""

import argparse
import contextlib
import hashlib
import io
import os
import subprocess
import sys
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
CORPUS: Final = Path(__file__).parent / "corpus"
BUILD: Final = ROOT / "build" / "fuzz"
_INPUT_BYTES: Final = 8192
_MEMORY_MB: Final = 4096
"""Of the process, MiB: it keeps memory that pyarrow freed. The readers of collect have a limit of their own."""
_INPUT_S: Final = 20
"""Longest time for one input."""


def fuzz(name: str, seconds: int) -> None:
    """Fuzz a decoder in this process, and end it."""
    import atheris

    # Packages that the decoders use only for constants or types are left alone: instrumenting them takes minutes.
    instrumented = ["hifi", "hifi_ingest", "hifi_manage", "hifi_objects", "ruamel.yaml"]
    with contextlib.redirect_stderr(io.StringIO()), atheris.instrument_imports(include=instrumented):
        from tests.fuzz.decoders import DECODERS

    folder = BUILD / name
    folder.mkdir(parents=True, exist_ok=True)
    options = [
        f"-max_total_time={seconds}",
        f"-max_len={_INPUT_BYTES}",
        f"-rss_limit_mb={_MEMORY_MB}",
        f"-timeout={_INPUT_S}",
        f"-artifact_prefix={folder}/",
        "-print_final_stats=1",
        "-verbosity=0",
    ]

    def decode(data: bytes) -> None:
        """Keep the input at which the decoder fails."""
        try:
            DECODERS[name](data)
        except Exception:
            (folder / f"failed-{hashlib.sha256(data).hexdigest()[:16]}").write_bytes(data)
            raise

    atheris.Setup([sys.argv[0], *options, str(folder), str(CORPUS / name)], decode)
    atheris.Fuzz()


def main() -> int:
    """Fuzz decoders one after another, each in a process of its own."""
    folder_names = sorted(folder.name for folder in CORPUS.iterdir())
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz")
    parser.add_argument(
        "names", nargs="*", default=folder_names, metavar="NAME", help=f"of {', '.join(folder_names)}"
    )
    parser.add_argument("--seconds", type=int, default=600, help="for each decoder")
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if unknown := set(arguments.names) - set(folder_names):
        parser.error(f"there is no decoder {', '.join(sorted(unknown))}")
    if arguments.here:
        fuzz(arguments.names[0], arguments.seconds)
    failed_names = []
    for name in arguments.names:
        command = [sys.executable, "-m", "tests.fuzz", name, "--seconds", str(arguments.seconds), "--here"]
        print(f"{name}: {arguments.seconds} s", flush=True)
        # Compiled modules cannot be instrumented; the same sources run.
        completed = subprocess.run(command, check=False, cwd=ROOT, env=os.environ | {"HIFI_COMPILED": "0"})
        if completed.returncode:
            failed_names.append(name)
    print(
        f"failed: {', '.join(failed_names)}; see {BUILD}"
        if failed_names
        else f"{len(arguments.names)} decoders, no defect"
    )
    return int(bool(failed_names))


if __name__ == "__main__":
    sys.exit(main())
