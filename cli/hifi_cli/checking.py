"""Everything that can be said about pipes without running them, with file and line."""

import contextlib
import hashlib
import importlib
import os
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from hifi.errors import Misconfigured
from hifi.pipe import loader
from hifi.pipe.loader import LoadedPipe, PipeProblem
from hifi.pipe.model import Enrich, Pipe
from hifi_infra.mesh.plan import Trigger


def check_folder(
    folder: Path,
    trigger: Trigger,
    *,
    sql: bool = True,
    seen: Path | None = None,
    places: Sequence[Path] | None = None,
) -> tuple[list[Pipe], list[PipeProblem]]:
    """Read a folder of pipes and check them.

    Args:
        folder: with one YAML file a pipe.
        trigger: that the pipes are to run with.
        sql: check SQL expressions too, which starts Spark (some seconds).
        seen: a folder that remembers which pipes passed, so that unchanged ones cost nothing again.
        places: where a running mesh looks for functions; None: the folder itself is such a place.

    Returns:
        The pipes that could be read, and everything that is wrong.
    """
    loaded, problems = loader.load(folder)
    for one in loaded:
        problems += _functions(one, [folder] if places is None else places)
        problems += _lookups(one)
        problems += _mapping(one)
        problems += _destinations(one)
    if sql and not problems:
        fresh = [one for one in loaded if not _has_passed(one, trigger, seen)]
        found = _sql(fresh, trigger)
        problems += found
        if not found and seen is not None:
            for one in fresh:
                _remember(one, trigger, seen)
    return [one.pipe for one in loaded], sorted(
        problems, key=lambda problem: (str(problem.file), problem.line)
    )


def _functions(one: LoadedPipe, places: Sequence[Path]) -> Iterator[PipeProblem]:
    """Functions named by import path must be there."""
    named: list[tuple[Sequence[str | int], str | None]] = [
        (("normalize", "function"), one.pipe.normalize.function),
        (("enrich", "udf", "function"), one.pipe.enrich.udf.function if one.pipe.enrich.udf else None),
    ]
    for path, function in named:
        if function is not None and (wrong := _cannot_import(function, places)):
            yield one.problem(path, wrong)


def _cannot_import(function: str, places: Sequence[Path]) -> str | None:
    module, _, name = function.partition(":")
    sys.path[:0] = [place for one in places if (place := str(one.resolve())) not in sys.path]
    try:
        found = getattr(importlib.import_module(module), name, None)
    except Exception as error:  # noqa: BLE001 - a user's module may raise anything while it is imported
        where = (
            ", ".join(map(str, places)) or "a folder that the mesh was started with (`hifi up --pipes DIR`)"
        )
        return f"{module} cannot be imported: {type(error).__name__}: {error}; is it in {where} or on PYTHONPATH?"
    if found is None:
        return f"the module {module} has no {name!r}"
    return None if callable(found) else f"{function} is no function"


def _lookups(one: LoadedPipe) -> Iterator[PipeProblem]:
    """Files of lookups must be readable and have their columns; SQL tables are enrich's to reach."""
    from hifi_enrich.lookup.load import read

    for name, lookup in one.pipe.enrich.lookups.items():
        if lookup.file is None:
            continue
        try:
            read(lookup)
        except Misconfigured as error:
            yield one.problem(("enrich", "lookups", name, "file"), str(error))


def _mapping(one: LoadedPipe) -> Iterator[PipeProblem]:
    from hifi_normalize.mapping import mapper

    try:
        mapper(one.pipe.normalize)
    except Misconfigured as error:
        yield one.problem(("normalize", "fields"), str(error))


def _destinations(one: LoadedPipe) -> Iterator[PipeProblem]:
    """Transforms and headers, as egest makes requests of them; secrets are looked at where egest runs."""
    from hifi_egest.binding import Binding

    for index, destination in enumerate(one.pipe.destinations):
        try:
            written = {name: value for name, value in destination.headers.items() if isinstance(value, str)}
            Binding(destination, written, None)
        except Misconfigured as error:
            yield one.problem(("destinations", index), str(error))


def _sql(loaded: Sequence[LoadedPipe], trigger: Trigger) -> list[PipeProblem]:
    loaded = [one for one in loaded if _has_sql(one.pipe)]
    if not loaded:
        return []
    from hifi_enrich.check import check_sql

    by_name = {one.pipe.pipe: one for one in loaded}
    with _quiet():
        found = check_sql([one.pipe for one in loaded], trigger)
    return [by_name[problem.pipe].problem(problem.path, problem.message) for problem in found]


def _has_sql(pipe: Pipe) -> bool:
    """Whether there is anything that Spark would have to look at."""
    return pipe.enrich != Enrich() or any(one.when for one in pipe.destinations)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Keep what Spark's JVM says on its own standard error; it is shown when the check itself fails."""
    with tempfile.TemporaryFile() as said:
        terminal = os.dup(2)
        os.dup2(said.fileno(), 2)
        try:
            yield
        except Exception as error:
            said.seek(0)
            tail = said.read()[-2000:].decode(errors="replace")
            raise Misconfigured(f"Spark could not check the SQL expressions: {error}\n{tail}") from error
        finally:
            os.dup2(terminal, 2)
            os.close(terminal)


def _mark(one: LoadedPipe, trigger: Trigger, seen: Path) -> Path:
    text = f"{trigger} {one.pipe.model_dump_json()}"
    return seen / hashlib.sha256(text.encode()).hexdigest()[:32]


def _has_passed(one: LoadedPipe, trigger: Trigger, seen: Path | None) -> bool:
    return seen is not None and _mark(one, trigger, seen).exists()


def _remember(one: LoadedPipe, trigger: Trigger, seen: Path) -> None:
    seen.mkdir(parents=True, exist_ok=True)
    _mark(one, trigger, seen).touch()
