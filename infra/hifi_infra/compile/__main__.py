"""Compile the modules that `tool.hifi.compiled` in pyproject.toml lists, and have Python import them.

`python -m hifi_infra.compile` builds into the user's cache folder and adds `hifi_compiled.pth` to this environment,
which every new process reads when it starts; processes that run keep what they have imported. Images get copies of one
build: see infra/docker/image_parts.py.
"""

import argparse
import os
import re
import sys
import sysconfig
import time
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from hifi.runtime.compiled.import_hook import folder_in_use
from hifi.runtime.errors import Misconfigured
from hifi.spark.jars import user_cache_folder
from hifi_infra.compile.build import (
    CompiledBuild,
    build_into,
    copy_part,
    has_compiler,
    plan_build,
    remove_old_builds,
)
from hifi_infra.compile.first_party import source_closure

LINK: Final = "hifi_compiled.pth"
"""A line of Python in the environment's packages that names the build; Python runs it at each start."""


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m hifi_infra.compile", description=__doc__)
    parser.add_argument("--folder", type=Path, help="where the modules go (default: the user's cache folder)")
    parser.add_argument(
        "--which", action="store_true", help="build nothing; print the folder of the build that is in use"
    )
    parser.add_argument(
        "--service", help="copy what this package imports, such as hifi_egest, from --folder to --into"
    )
    parser.add_argument("--into", type=Path, help="folder of the copy, as the service will see it")
    parser.add_argument("--packages", type=Path, help="site-packages of the service, as it will see them")
    parser.add_argument(
        "--root", type=Path, default=Path("/"), help="write the copy below it, as `pip install --root`"
    )
    arguments = parser.parse_args()
    if arguments.which:
        print(folder_in_use() or "")
    elif arguments.service:
        _copy(arguments)
    elif _installed():
        _say("the installed wheel of hifi has them")
    elif os.environ.get("HIFI_COMPILED") == "0":
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


def _installed() -> bool:
    """Whether this environment has the compiled modules of a wheel (`make wheels`), not a link to a build."""
    used_folder = folder_in_use()
    return used_folder is not None and Path(used_folder).parent == Path(sysconfig.get_path("purelib"))


def _make(arguments: argparse.Namespace) -> None:
    start_s = time.monotonic()
    config = Path("pyproject.toml").resolve()
    build = planned(config)
    folder: Path = arguments.folder or user_cache_folder() / "compiled" / build.key
    is_new = not folder.is_dir()
    build_into(folder, build, config)
    if arguments.folder is None:
        link_build(Path(sysconfig.get_path("purelib")), folder)
        folder.touch()
        remove_old_builds(folder.parent)
    if is_new:
        _say(f"{len(build.modules)} in {time.monotonic() - start_s:.0f} s")


def _copy(arguments: argparse.Namespace) -> None:
    build = planned(Path("pyproject.toml").resolve(), arguments.service)
    copy_part(arguments.folder, arguments.root / arguments.into.relative_to("/"), build)
    link_build(arguments.root / arguments.packages.relative_to("/"), arguments.into)


def planned(config: Path, service: str | None = None) -> CompiledBuild:
    """The build that pyproject.toml asks for.

    Args:
        config: path of pyproject.toml: modules from `tool.hifi.compiled`, folders of packages from `tool.mypy`.
        service: package; only modules that it and the connectors that it depends on import. None: all.

    Raises:
        Misconfigured: a listed module does not exist.
    """
    tools = tomllib.loads(config.read_text("utf-8"))["tool"]
    modules: list[str] = tools["hifi"]["compiled"]["modules"]
    roots = [config.parent / root for root in tools["mypy"]["mypy_path"]]
    if service is not None:
        imported_sources = source_closure([f"{service}.__main__", *_connector_kinds(service, roots)], roots)
        modules = [name for name in modules if name.replace(".", "/") + ".py" in imported_sources]
    return plan_build(modules, roots)


def _connector_kinds(service: str, roots: Sequence[Path]) -> list[str]:
    """The modules that entry points name of the connectors that a service depends on: it does not import them."""
    projects = {
        project["name"]: project
        for root in roots
        if (file := root / "pyproject.toml").is_file()
        and (project := tomllib.loads(file.read_text("utf-8"))["project"])
    }
    project = projects.get(service.replace("_", "-"), {})
    package_names = [re.split(r"[^\w-]", line)[0] for line in project.get("dependencies", ())]
    groups = [projects[name].get("entry-points", {}) for name in package_names if name in projects]
    values = [value for group in groups for kinds in group.values() for value in kinds.values()]
    return sorted({value.partition(":")[0] for value in values})


def link_build(packages: Path, folder: Path) -> None:
    """Have the Python of an environment import a build, from its next start on.

    Args:
        packages: site-packages of the environment.
        folder: of the build, as the environment will see it.
    """
    line = f"import hifi.runtime.compiled.import_hook as hook; hook.install({str(folder)!r})\n"
    packages.mkdir(parents=True, exist_ok=True)
    temporary_file = packages / f".{LINK}-{os.getpid()}"
    temporary_file.write_text(line, "utf-8")
    temporary_file.replace(packages / LINK)


def _say(text: str) -> None:
    print(f"compiled modules: {text}", file=sys.stderr)


if __name__ == "__main__":
    main()
