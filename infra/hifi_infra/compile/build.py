"""Build a folder of extension modules from typed Python modules with mypyc and the C compiler."""

import contextlib
import hashlib
import io
import os
import platform
import shutil
import sys
import sysconfig
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from hifi.runtime.compiled.import_hook import MODULES, SOURCES
from hifi.runtime.errors import Misconfigured
from hifi_infra.compile.first_party import source_closure

if TYPE_CHECKING:
    from setuptools import Extension

GROUP: Final = "hifi_compiled"
"""All modules share one library, in which they call each other directly: `hifi_compiled__mypyc`."""
OPTIMIZATION: Final = "1"
KEPT_BUILDS: Final = 12
"""How many builds the cache keeps; the ones used least recently go."""


@dataclass(frozen=True, slots=True)
class CompiledBuild:
    """Modules to compile, and the sources and settings of the build."""

    modules: tuple[str, ...]
    sources: dict[str, Path]
    """Path relative to its root, such as `hifi/record/identity.py`, to its file: the modules and all they import."""
    checksums: dict[str, str]
    """SHA-256 of the same files, hexadecimal."""

    @property
    def key(self) -> str:
        """Checksum of everything that the result depends on: sources, Python, compiler options, installed packages."""
        packages = sorted(
            f"{distribution.name} {distribution.version}" for distribution in metadata.distributions()
        )
        tool = Path(__file__).read_text("utf-8")
        python = f"{sys.version} {platform.platform()} {sysconfig.get_config_var('EXT_SUFFIX')}"
        inputs = [python, tool, *self.modules, *packages, *map(" ".join, self.checksums.items())]
        return hashlib.sha256("\n".join(inputs).encode()).hexdigest()[:32]


def plan_build(modules: Sequence[str], roots: Sequence[Path]) -> CompiledBuild:
    """Find and hash the sources of modules.

    Raises:
        Misconfigured: there is no such module.
    """
    sources = dict(sorted(source_closure(modules, roots).items()))  # the same build has the same key
    checksums = {path: hashlib.sha256(file.read_bytes()).hexdigest() for path, file in sources.items()}
    return CompiledBuild(tuple(sorted(modules)), sources, checksums)


def has_compiler() -> bool:
    """Whether this Python's C compiler and header files are installed."""
    compiler = (sysconfig.get_config_var("CC") or "cc").split()[0]
    return shutil.which(compiler) is not None and Path(sysconfig.get_path("include"), "Python.h").exists()


def build_into(folder: Path, build: CompiledBuild, config: Path) -> None:
    """Compile to a folder, which appears at once and complete. Nothing is done where it exists.

    Args:
        folder: does not exist, or holds the same build.
        build: what to compile.
        config: pyproject.toml with mypy's settings; its folder is the working directory.

    Raises:
        Misconfigured: mypyc or the C compiler refused the code; the message has what they printed.
    """
    if folder.is_dir():
        return
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".part-", dir=folder.parent) as temporary_folder:
        compiled = Path(temporary_folder, "result")
        extensions = _compile(build, config, Path(temporary_folder, "build"), compiled)
        _write_index(compiled, build, extensions)
        compiled.chmod(0o755)
        with contextlib.suppress(OSError):  # another process was faster
            compiled.rename(folder)


def copy_part(complete_build: Path, target: Path, build: CompiledBuild) -> None:
    """Copy some modules of a build, with the library that all of its modules share.

    Args:
        complete_build: folder of a build that has these modules.
        target: the new folder.
        build: the modules, all that they import among them.
    """
    lines = (complete_build / MODULES).read_text("utf-8").splitlines()
    extensions = dict(line.split(" ", 1) for line in lines)
    library = f"{GROUP}__mypyc"
    chosen_extensions = {module: extensions[module] for module in (library, *build.modules)}
    for path in chosen_extensions.values():
        (target / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(complete_build / path, target / path)
    _write_index(target, build, chosen_extensions)


def _write_index(folder: Path, build: CompiledBuild, extensions: dict[str, str]) -> None:
    modules = "".join(f"{module} {path}\n" for module, path in extensions.items())
    (folder / MODULES).write_text(modules, "utf-8")
    sources = "".join(f"{checksum} {path}\n" for path, checksum in build.checksums.items())
    (folder / SOURCES).write_text(sources, "utf-8")


def remove_old_builds(cache: Path) -> None:
    """Keep the newest builds of a cache. Processes that have loaded a removed one keep its open files."""
    builds = sorted(
        (build_folder for build_folder in cache.iterdir() if build_folder.is_dir()),
        key=lambda build_folder: build_folder.stat().st_mtime,
    )
    for old_folder in builds[:-KEPT_BUILDS]:
        shutil.rmtree(old_folder, ignore_errors=True)


def _compile(build: CompiledBuild, config: Path, scratch: Path, compiled: Path) -> dict[str, str]:
    """Compile; returns the extensions by module, as paths relative to `compiled`."""
    from setuptools import Distribution
    from setuptools.command.build_ext import build_ext

    class _ParallelBuild(build_ext):  # type: ignore[misc]  # setuptools publishes no types
        """Compiles the C files of an extension side by side."""

        def build_extensions(self) -> None:
            compile_some = self.compiler.compile

            def compile_each(sources: list[str], **options: Any) -> list[str]:
                with ThreadPoolExecutor(os.cpu_count()) as pool:
                    objects = pool.map(lambda source: compile_some([source], **options), sources)
                    return [object_file for object_files in objects for object_file in object_files]

            self.compiler.compile = compile_each
            super().build_extensions()

    command = _ParallelBuild(Distribution({"name": GROUP, "ext_modules": _translate(build, config, scratch)}))
    command.build_lib, command.build_temp, command.parallel = str(compiled), str(scratch), os.cpu_count()
    command.ensure_finalized()
    output = io.StringIO()
    try:
        with contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
            command.run()
    except Exception as error:
        raise Misconfigured(f"the C compiler failed: {error}\n{output.getvalue()}") from error
    return {extension.name: command.get_ext_filename(extension.name) for extension in command.extensions}


def _translate(build: CompiledBuild, config: Path, scratch: Path) -> "list[Extension]":
    """Translate the modules to C."""
    from mypyc.build import mypycify

    paths = {module.replace(".", "/") + ".py" for module in build.modules}
    files = [os.path.relpath(file, config.parent) for path, file in build.sources.items() if path in paths]
    output = io.StringIO()
    with (
        contextlib.chdir(config.parent),
        contextlib.redirect_stdout(output),
        contextlib.redirect_stderr(output),
    ):
        try:
            extensions: list[Extension] = mypycify(
                [f"--config-file={config}", *files],
                group_name=GROUP,
                target_dir=str(scratch),
                opt_level=OPTIMIZATION,
                debug_level="0",
                multi_file=True,
            )
        except SystemExit:
            raise Misconfigured(f"mypyc cannot compile the modules:\n{output.getvalue()}") from None
    return extensions
