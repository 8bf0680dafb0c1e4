"""Compile the modules that `tool.hifi.compiled` in pyproject.toml lists, and have Python import them.

`python -m hifi_infra.compile` builds into the user's cache folder and adds `hifi_compiled.pth` to this environment,
which every new process reads when it starts; processes that run keep what they have imported. Images name packages and
folders: see services/normalize/Dockerfile.
"""

import argparse
import os
import subprocess
import sys
import time
import tomllib
from pathlib import Path
from typing import Final

from hifi.errors import Misconfigured
from hifi.jars import user_cache_folder
from hifi_infra.compile.build import CompiledBuild, build_into, has_compiler, plan_build, remove_old_builds

LINK: Final = "hifi_compiled.pth"
"""A line of Python in the environment's packages that names the build; Python runs it at each start."""


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m hifi_infra.compile", description=__doc__)
    parser.add_argument(
        "--packages", default="", help="compile only modules of these packages, such as hifi,hifi_egest"
    )
    parser.add_argument("--folder", type=Path, help="where the modules go (default: the user's cache folder)")
    parser.add_argument(
        "--root", type=Path, default=Path("/"), help="write below this folder, as `pip install --root`"
    )
    parser.add_argument(
        "--python", default=sys.executable, help="interpreter of the environment that imports them"
    )
    arguments = parser.parse_args()
    if os.environ.get("HIFI_COMPILED") == "0":
        _say("HIFI_COMPILED=0: nothing was compiled")
    elif not has_compiler():
        _say(
            "no C compiler with Python's header files was found; everything runs uncompiled, which costs more CPU"
        )
    else:
        try:
            _make(arguments)
        except Misconfigured as error:
            sys.exit(f"compiled modules: {error}\nHIFI_COMPILED=0 goes on without compiled modules")


def _make(arguments: argparse.Namespace) -> None:
    started = time.monotonic()
    config = Path("pyproject.toml").resolve()
    build = planned(config, [name for name in arguments.packages.split(",") if name])
    folder: Path = arguments.folder or user_cache_folder() / "compiled" / build.key
    is_new = not folder.is_dir()
    build_into(arguments.root / folder.relative_to("/"), build, config)
    link_build(arguments.root / _packages_of(arguments.python).relative_to("/"), folder)
    if arguments.folder is None:
        folder.touch()
        remove_old_builds(folder.parent)
    if is_new:
        _say(f"{len(build.modules)} in {time.monotonic() - started:.0f} s")


def planned(config: Path, packages: list[str]) -> CompiledBuild:
    """The build that pyproject.toml asks for.

    Args:
        config: path of pyproject.toml: modules from `tool.hifi.compiled`, folders of packages from `tool.mypy`.
        packages: only their modules; empty: all.

    Raises:
        Misconfigured: a listed module does not exist.
    """
    tools = tomllib.loads(config.read_text("utf-8"))["tool"]
    modules = [
        name
        for name in tools["hifi"]["compiled"]["modules"]
        if not packages or name.partition(".")[0] in packages
    ]
    return plan_build(modules, [config.parent / root for root in tools["mypy"]["mypy_path"]])


def link_build(packages: Path, folder: Path) -> None:
    """Have the Python of an environment import a build, from its next start on.

    Args:
        packages: site-packages of the environment.
        folder: of the build, as the environment will see it.
    """
    line = f"import hifi.compiled.import_hook as hook; hook.install({str(folder)!r})\n"
    part = packages / f".{LINK}-{os.getpid()}"
    part.write_text(line, "utf-8")
    part.replace(packages / LINK)


def _packages_of(python: str) -> Path:
    """The folder of pure Python packages of an interpreter."""
    command = [python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"]
    return Path(subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip())


def _say(text: str) -> None:
    print(f"compiled modules: {text}", file=sys.stderr)


if __name__ == "__main__":
    main()
