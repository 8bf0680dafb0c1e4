"""Makes what the images consist of: packages and code, below /images/<name>/packages and /images/<name>/code.

    python image_parts.py packages     # from requirements/<name>.lock, beside this file's repository
    python image_parts.py code         # from libs, infra, cli and services; compiles modules once for all images

A layer holds what the layers below it lack: `libs` the packages of every service, `spark` those of every service with
Spark, and each image the rest. Needs uv, setuptools and hatchling; runs in the image of base.Dockerfile.
"""

import filecmp
import os
import re
import shutil
import subprocess
import sys
import tomllib
from importlib.metadata import Distribution
from importlib.util import cache_from_source
from pathlib import Path
from typing import Final, TypedDict

from trim import trim

ROOT: Final = Path(__file__).parents[2]
IMAGES: Final = Path("/images")
HOME: Final = Path("/opt/hifi")
"""The environment of a service in its image."""
TYPES: Final = Path("/opt/types")
"""An environment with the packages of all compiled modules and the compiler's own."""
COMPILED: Final = Path("/compiled")
LOCKS: Final = ROOT / "requirements"
PYSPARK: Final = re.compile(r"^pyspark==.*\\\n(?: .*\n)+", re.MULTILINE)
"""Its lines of a lock."""
WHEELS: Final = Path("/wheels")
NO_IMAGE: Final = ("all", "audit", "bench", "build", "compile", "hifi", "infra", "release")
"""Locks that are no image's."""
ALONE: Final = ("destination",)
"""Images that do not stand on `libs`."""
UNCOMPILED: Final = ("deploy", "enrich", "lake", "manage", "scale", "state", "tools", "view")
"""Images that use no compiled module for each event."""

UNUSED: Final = (
    *(".lock", "Activate.ps1", "activate*", "include", "pandas/tests", "pyarrow/tests", "pyarrow/src"),
    *("libarrow_flight*", "_flight.*"),
    *("plotly/[e-l]*", "plotly/validators", "plotly/package_data/[dtw]*", "narwhals"),
)
UNUSED_OBJECT_STORES: Final = ("libarrow_s3*", "_s3fs.*", "_gcsfs.*", "_azurefs.*")
"""Arrow's file systems; only lake reads and writes through them."""
UNUSED_SPARK: Final = Path(__file__).parent / "spark/unused"
"""Patterns below the package: Hive, Kubernetes, YARN, machine learning, graphs, Connect, shells, RocksDB."""


def images() -> list[str]:
    """Names of the locks that belong to images; `libs` and `spark` first."""
    lock_names = {path.stem for path in LOCKS.glob("*.lock")} - set(NO_IMAGE)
    return sorted(lock_names, key=lambda name: (name != "libs", name != "spark", name))


def install_packages() -> None:
    """Install the packages of every image."""
    for name in images():
        lock = LOCKS / f"{name}.lock"
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", HOME], check=True)
        _install(HOME, lock)
        unused_here = UNUSED if name == "lake" else (*UNUSED, *UNUSED_OBJECT_STORES)
        spark = next(HOME.glob("lib/python3*/site-packages/pyspark"), None)
        if spark is not None:
            _remove_from_spark(spark)
        trim(HOME, unused_here)
        packages = IMAGES / name / "packages"
        packages.joinpath("opt").mkdir(parents=True)
        HOME.rename(packages / "opt/hifi")
        lower_layers = [] if name in (*ALONE, "libs") else ["libs"]
        lower_layers += ["spark"] if spark is not None and name != "spark" else []
        for lower_layer in lower_layers:
            _leave_out(packages, IMAGES / lower_layer / "packages")
        _compile_bytecode(packages, "unchecked-hash")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", TYPES], check=True)
    _install(TYPES, LOCKS / "compile.lock", *(LOCKS / f"{name}.lock" for name in images()))
    shutil.rmtree(WHEELS)
    subprocess.run(["uv", "cache", "clean", "--quiet"], check=True)


def _install(environment: Path, *locks: Path) -> None:
    """Install what locks name, from wheels."""
    options = [argument for lock in locks for argument in ("-r", str(_without_pyspark(lock)))]
    if any(PYSPARK.search(lock.read_text("utf-8")) for lock in locks):
        options += [str(wheel) for wheel in WHEELS.glob("pyspark-*.whl")]
    index = {"UV_DEFAULT_INDEX": url} if (url := os.environ.get("PIP_INDEX_URL")) else {}
    certificates = {"SSL_CERT_FILE": file} if (file := os.environ.get("PIP_CERT")) else {}
    command: list[str | Path] = [
        "uv",
        "pip",
        "install",
        "--quiet",
        "--only-binary",
        ":all:",
        "--python",
        environment / "bin/python",
    ]
    subprocess.run([*command, *options], env={**os.environ, **index, **certificates}, check=True)
    for cache_file in environment.glob("lib/python3*/site-packages/*.dist-info/uv_cache.json"):
        # When uv took a wheel that was made here: another time in each build.
        record = cache_file.with_name("RECORD")
        lines = record.read_text("utf-8").splitlines(keepends=True)
        record.write_text("".join(line for line in lines if cache_file.name not in line), "utf-8")
        cache_file.unlink()


def _without_pyspark(lock: Path) -> Path:
    """The lock without PySpark, which is published as a source archive only; makes a wheel of it the first time."""
    text = lock.read_text("utf-8")
    if not (pyspark := PYSPARK.search(text)):
        return lock
    if not any(WHEELS.glob("pyspark-*.whl")):
        archive = WHEELS / "pyspark.lock"
        archive.parent.mkdir(parents=True)
        archive.write_text(pyspark[0], "utf-8")
        pip = ["pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--require-hashes"]
        subprocess.run([*pip, "-w", WHEELS, "-r", archive], check=True)
    other_wheels = WHEELS / lock.name
    other_wheels.write_text(PYSPARK.sub("", text), "utf-8")
    return other_wheels


def _remove_from_spark(spark: Path) -> None:
    for pattern in UNUSED_SPARK.read_text("utf-8").splitlines():
        for path in list(spark.glob(pattern)):
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink()


def _leave_out(tree: Path, lower_folder: Path) -> None:
    """Remove what a lower layer has. The same path with other content would hide it, and is an error."""
    for path in sorted(tree.rglob("*"), reverse=True):
        lower_path = lower_folder / path.relative_to(tree)
        if path.is_dir() and not path.is_symlink():
            if lower_path.is_dir() and not any(path.iterdir()):
                path.rmdir()
        elif lower_path.is_symlink() or lower_path.exists():
            if not path.is_symlink() and not filecmp.cmp(path, lower_path, shallow=False):
                sys.exit(f"{path} and {lower_path} differ: run requirements/lock.sh")
            path.unlink()


def _compile_bytecode(packages: Path, invalidation_mode: str) -> None:
    # In one process and order: bytecode depends on what the process has compiled before.
    compileall = [sys.executable, "-m", "compileall", "-q"]
    # By the hash of the source: with its time, two builds of one commit would differ.
    by_hash = ["--invalidation-mode", invalidation_mode]
    command: list[str | Path] = [*compileall, *by_hash, "-s", packages, "-p", "/", packages]
    environment = {**os.environ, "PYTHONHASHSEED": "0"}
    # Not checked: templates and sources for other versions of Python cannot be compiled, and nothing imports them.
    subprocess.run(command, env=environment, stdout=subprocess.DEVNULL, check=False)


def install_code() -> None:
    """Install the code of this repository into every image, and the compiled modules."""
    (ROOT / "cli/hifi_cli/demo/pipe").unlink(
        missing_ok=True
    )  # a link out of the package, for a mesh of processes
    folders = {
        _project(path)["name"]: path.parent for path in ROOT.glob("**/pyproject.toml") if path.parent != ROOT
    }
    staging = Path("/everything")
    pip = ["pip", "--quiet", "--disable-pip-version-check"]
    local_options = ["--no-deps", "--no-index"]
    subprocess.run(
        [*pip, "wheel", *local_options, "--no-build-isolation", "-w", WHEELS, *folders.values()], check=True
    )
    HOME.symlink_to(IMAGES / "libs/packages/opt/hifi")
    python = ["--python", str(HOME / "bin/python")]
    subprocess.run(
        [*pip, *python, "install", "--no-compile", *local_options, "--root", staging, *WHEELS.glob("*.whl")],
        check=True,
    )
    _compile_bytecode(staging, "checked-hash")  # an image made of this one may change a source
    site_packages = next(staging.glob("opt/hifi/lib/python3*/site-packages"))
    HOME.unlink()
    compile_modules = [str(TYPES / "bin/python"), "-m", "hifi_infra.compile", "--folder", str(COMPILED)]
    environment = {**os.environ, "PYTHONPATH": "libs:infra"}
    subprocess.run(compile_modules, cwd=ROOT, env=environment, check=True)
    if COMPILED.is_dir():
        trim(COMPILED)
    for name in images():
        package = "hifi-cli" if name == "tools" else f"hifi-{name}"
        if package not in folders or name == "libs":
            continue
        code = IMAGES / name / "code"
        for package_name in _closure(package, folders):
            _copy_package(
                Distribution.at(next(site_packages.glob(f"{package_name.replace('-', '_')}-*.dist-info"))),
                staging,
                code,
            )
        if name != "tools":
            (code / "opt/hifi/bin/service").symlink_to(package)
        if COMPILED.is_dir() and name not in UNCOMPILED:
            options = [
                "--root",
                str(code),
                "--into",
                str(HOME / "compiled"),
                "--packages",
                str("/" / site_packages.relative_to(staging)),
            ]
            subprocess.run(
                [*compile_modules, "--service", f"hifi_{name}", *options],
                cwd=ROOT,
                env=environment,
                check=True,
            )


class _Project(TypedDict):
    """The table `project` of a pyproject.toml."""

    name: str
    dependencies: list[str]


def _project(path: Path) -> _Project:
    project: _Project = tomllib.loads(path.read_text("utf-8"))["project"]
    return project


def _closure(package: str, folders: dict[str, Path]) -> list[str]:
    """A package of this repository and those that it requires, directly or not."""
    packages: list[str] = []
    queue = [package]
    while queue:
        name = queue.pop()
        if name in folders and name not in packages:
            packages.append(name)
            queue += [
                re.split(r"[^\w-]", line)[0]
                for line in _project(folders[name] / "pyproject.toml")["dependencies"]
            ]
    return packages


def _copy_package(package: Distribution, source: Path, target: Path) -> None:
    """Copy the files of an installed package and their bytecode to the same places below another folder."""
    for file in package.files or []:
        path = Path(os.path.normpath(str(package.locate_file(file))))
        compiled = Path(cache_from_source(path)) if path.suffix == ".py" else path
        for source_file in {path, compiled}:
            if source_file.exists():
                target_file = target / source_file.relative_to(source)
                target_file.parent.mkdir(parents=True, exist_ok=True)
                os.link(source_file, target_file)


if __name__ == "__main__":
    {"packages": install_packages, "code": install_code}[sys.argv[1]]()
