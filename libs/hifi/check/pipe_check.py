"""Check pipes and views without running them; each problem is reported with its file and line.

SQL expressions, lookup files and HTTP requests are checked by late imports: the modules that evaluate them need
packages that most services do not have (Spark, SQLAlchemy, JMESPath).
"""

import contextlib
import hashlib
import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from hifi.delivery.installed_kinds import InvalidDestination, completed, installed_sender_kind, read_settings
from hifi.pipe.function_import import import_function
from hifi.pipe.limit_check import functions, refusals
from hifi.pipe.limits import pipe_limits
from hifi.pipe.loader import LoadedFolder, LoadedPipe, PipeProblem, load_folder
from hifi.pipe.model import ConnectorDestination, Enrich, Pipe, Trigger
from hifi.pipe.source import UnreadableSource, installed_source_kind
from hifi.pipe.sources.step import StepSource
from hifi.pipe.step_inputs import MAX_KEPT_BYTES, STEP, kept_bytes, pipes_read_by_steps
from hifi.pipe.step_refusals import step_refusals
from hifi.pipe.view import View
from hifi.pipe.view_check import view_refusals
from hifi.runtime.errors import Misconfigured


def check_folder(
    folder: Path,
    trigger: Trigger,
    *,
    sql: bool = True,
    passed_folder: Path | None = None,
    function_folders: Sequence[Path] | None = None,
    notes: list[PipeProblem] | None = None,
    views: list[View] | None = None,
    other_pipes: Mapping[str, Pipe] | None = None,
) -> tuple[list[Pipe], list[PipeProblem]]:
    """Load a folder of pipes and views and check them.

    Args:
        folder: with one YAML file per pipe.
        trigger: that the pipes will run with.
        sql: also check SQL expressions, which starts Spark (some seconds).
        passed_folder: folder that records which pipes passed the SQL check, so that unchanged pipes skip it.
        function_folders: where the running mesh finds Python functions; None: in `folder` and in
            HIFI_PIPES_FUNCTION_FOLDERS.
        notes: to add what is valid but may surprise, such as an expression that can overflow.
        views: to add the views that could be loaded.
        other_pipes: pipes by name that steps may read beside those of the folder; their SQL is checked already.

    Returns:
        The pipes that could be loaded, as they are published if there is no problem, and all problems by file and line.
    """
    loaded_folder = load_folder(folder)
    loaded_pipes, problems = loaded_folder.pipes, list(loaded_folder.problems)
    search_folders = (
        [folder, *pipe_limits().function_folders] if function_folders is None else function_folders
    )
    for loaded_pipe in loaded_pipes:
        problems += _check_source(loaded_pipe)
        problems += _check_functions(loaded_pipe, search_folders)
        problems += _check_limits(loaded_pipe)
        problems += _check_lookups(loaded_pipe)
        problems += _check_fields(loaded_pipe)
        problems += _check_destinations(loaded_pipe)
    all_pipes = dict(other_pipes or {}) | {
        loaded_pipe.pipe.pipe: loaded_pipe.pipe for loaded_pipe in loaded_pipes
    }
    problems += _check_steps(loaded_pipes, all_pipes)
    problems += _check_step_inputs(loaded_pipes)
    problems += _check_views(loaded_folder)
    if notes is not None and not problems:
        notes += _experimental(loaded_folder)
    if views is not None:
        views += [loaded_view.view for loaded_view in loaded_folder.views]
    if sql and not problems:
        markers = _marker_files(loaded_pipes, all_pipes, trigger, passed_folder)
        unchecked_pipes = [
            loaded_pipe
            for loaded_pipe, marker in zip(loaded_pipes, markers, strict=True)
            if marker is None or not marker.exists()
        ]
        sql_problems = _check_sql(unchecked_pipes, all_pipes, trigger, [] if notes is None else notes)
        problems += sql_problems
        if not sql_problems:
            for marker in filter(None, markers):
                marker.parent.mkdir(parents=True, exist_ok=True)
                marker.touch()
    pipes = [loaded_pipe.pipe for loaded_pipe in loaded_pipes]
    return (
        [completed(pipe) for pipe in pipes] if not problems else pipes,
        sorted(problems, key=lambda problem: (str(problem.file), problem.line)),
    )


def _check_source(loaded_pipe: LoadedPipe) -> Iterator[PipeProblem]:
    """The kind of the source must be installed; its keys are checked when the pipe is loaded."""
    source = loaded_pipe.pipe.source
    if isinstance(source, UnreadableSource):
        try:
            installed_source_kind(source.kind)
        except Misconfigured as error:
            yield loaded_pipe.problem(("source", "kind"), str(error))


def _check_steps(loaded_pipes: Sequence[LoadedPipe], pipes: Mapping[str, Pipe]) -> Iterator[PipeProblem]:
    """Steps must read declared pipes."""
    for loaded_pipe in loaded_pipes:
        for path, reason in step_refusals(loaded_pipe.pipe, pipes):
            yield loaded_pipe.problem(path, reason)


def _check_step_inputs(loaded_pipes: Sequence[LoadedPipe]) -> Iterator[PipeProblem]:
    """Kafka must have room for the watermarks of all pipes that steps read."""
    read_pipes = pipes_read_by_steps(loaded_pipe.pipe for loaded_pipe in loaded_pipes)
    if kept_bytes(read_pipes) > MAX_KEPT_BYTES:
        for loaded_pipe in loaded_pipes:
            if loaded_pipe.pipe.source.kind == STEP:
                yield loaded_pipe.problem(
                    ("source", "from"),
                    f"steps read {len(read_pipes)} pipes, whose watermarks need {kept_bytes(read_pipes)} bytes beside"
                    f" each committed offset, and Kafka keeps {MAX_KEPT_BYTES}: let steps read fewer pipes, or shorten"
                    " their names",
                )


def _check_views(loaded_folder: LoadedFolder) -> Iterator[PipeProblem]:
    """Views must be allowed by the operator and by the pipes that they read."""
    pipes = {loaded_pipe.pipe.pipe: loaded_pipe.pipe for loaded_pipe in loaded_folder.pipes}
    for loaded_view in loaded_folder.views:
        view = loaded_view.view
        for path, reason in view_refusals(view, pipes.get(view.from_.pipe), pipe_limits()):
            yield loaded_view.problem(path, reason)


def _experimental(loaded_folder: LoadedFolder) -> Iterator[PipeProblem]:
    """Parts of a pipe that lack a proof that HTTP has; docs/decisions/experimental.md."""
    for loaded_pipe in loaded_folder.pipes:
        if loaded_pipe.pipe.source.kind == STEP:
            yield loaded_pipe.problem(
                ("source", "kind"),
                "experimental: steps are not part of the runs with faults of a whole mesh",
            )
        for index, destination in enumerate(loaded_pipe.pipe.destinations):
            if isinstance(destination, ConnectorDestination):
                kind, settings = read_settings(destination)
                if kind.unproven is not None and (reason := kind.unproven(settings)) is not None:
                    yield loaded_pipe.problem(("destinations", index), f"experimental: {reason}")
    for loaded_view in loaded_folder.views:
        yield loaded_view.problem(
            (), "experimental: views are not part of the runs with faults of a whole mesh"
        )


def _check_functions(loaded_pipe: LoadedPipe, folders: Sequence[Path]) -> Iterator[PipeProblem]:
    """Functions must be allowed and importable."""
    for path, function in functions(loaded_pipe.pipe):
        try:
            import_function(function, folders)
        except Misconfigured as error:
            yield loaded_pipe.problem(path, str(error))


def _check_limits(loaded_pipe: LoadedPipe) -> Iterator[PipeProblem]:
    """Secrets, lookup files and settings of catalogs must be allowed."""
    for path, reason in refusals(loaded_pipe.pipe, pipe_limits()):
        yield loaded_pipe.problem(path, reason)


def _check_lookups(loaded_pipe: LoadedPipe) -> Iterator[PipeProblem]:
    """Lookup files must be readable and have their columns. SQL tables are not read: only enrich may reach them."""
    from hifi.spark.lookup_reader import read_rows

    for name, lookup in loaded_pipe.pipe.enrich.lookups.items():
        if lookup.file is None or pipe_limits().refuse_lookup(lookup.file):
            continue
        try:
            read_rows(lookup, loaded_pipe.pipe.pipe)
        except Misconfigured as error:
            yield loaded_pipe.problem(("enrich", "lookups", name, "file"), str(error))


def _check_fields(loaded_pipe: LoadedPipe) -> Iterator[PipeProblem]:
    """Time zones must exist."""
    from hifi.pipe.normalize.field_mapping import field_mapper

    try:
        field_mapper(loaded_pipe.pipe.normalize)
    except Misconfigured as error:
        yield loaded_pipe.problem(("normalize", "fields"), str(error))


def _check_destinations(loaded_pipe: LoadedPipe) -> Iterator[PipeProblem]:
    """Transforms, headers and settings must be valid. Secrets are not read: only egest may have them."""
    for index, destination in enumerate(loaded_pipe.pipe.destinations):
        try:
            if isinstance(destination, ConnectorDestination):
                _check_settings(destination, loaded_pipe.pipe)
            else:
                installed_sender_kind(destination.kind).check(destination)
        except InvalidDestination as error:
            for path, message in error.problems:
                yield loaded_pipe.problem(("destinations", index, *path), message)
        except Misconfigured as error:
            yield loaded_pipe.problem(("destinations", index), str(error))


def _check_settings(destination: ConnectorDestination, pipe: Pipe) -> None:
    from hifi.delivery.transform import compile_transform

    kind, settings = read_settings(destination)
    if kind.check is not None:
        kind.check(destination, pipe, settings)
    if destination.transform is not None:
        compile_transform(destination.transform)


def _check_sql(
    loaded_pipes: Sequence[LoadedPipe],
    pipes: Mapping[str, Pipe],
    trigger: Trigger,
    notes: list[PipeProblem],
) -> list[PipeProblem]:
    """SQL expressions must be valid for Spark; those of a step have the types of the pipes that it reads."""
    sql_pipes = [loaded_pipe for loaded_pipe in loaded_pipes if _has_sql(loaded_pipe.pipe)]
    steps = [loaded_pipe for loaded_pipe in loaded_pipes if isinstance(loaded_pipe.pipe.source, StepSource)]
    if not sql_pipes and not steps:
        return []
    from hifi.spark.catalyst import Catalyst
    from hifi.spark.check import check_pipe
    from hifi.spark.spark_session import local_spark
    from hifi.spark.step_check import step_problems

    problems: list[PipeProblem] = []
    invalid_names: set[str] = set()
    with _captured_stderr(), local_spark() as spark:
        catalyst = Catalyst(spark)
        for loaded_pipe in sql_pipes:
            for finding in check_pipe(catalyst, loaded_pipe.pipe, trigger):
                problem = loaded_pipe.problem(finding.path, finding.message)
                if finding.is_note:
                    notes.append(problem)
                else:
                    problems.append(problem)
                    invalid_names.add(loaded_pipe.pipe.pipe)
        for loaded_pipe in steps:
            step = loaded_pipe.pipe.source
            if not isinstance(step, StepSource) or invalid_names.intersection(step.read_pipes):
                continue  # the types of its fields are not known
            read_pipes = [pipes[name] for name in step.read_pipes]
            for path, message in step_problems(catalyst, step, *read_pipes):
                problems.append(loaded_pipe.problem(path, message))
    return problems


def _has_sql(pipe: Pipe) -> bool:
    return pipe.enrich != Enrich() or any(destination.when for destination in pipe.destinations)


@contextlib.contextmanager
def _captured_stderr() -> Iterator[None]:
    """Hide what Spark's JVM writes to stderr, unless the check itself fails: then it is part of the error."""
    with tempfile.TemporaryFile() as stderr_file:
        stderr_copy = os.dup(2)
        os.dup2(stderr_file.fileno(), 2)
        try:
            yield
        except Exception as error:
            stderr_file.seek(0)
            tail = stderr_file.read()[-2000:].decode(errors="replace")
            raise Misconfigured(f"Spark could not check the SQL expressions: {error}\n{tail}") from error
        finally:
            os.dup2(stderr_copy, 2)
            os.close(stderr_copy)


def _marker_files(
    loaded_pipes: Sequence[LoadedPipe],
    pipes: Mapping[str, Pipe],
    trigger: Trigger,
    passed_folder: Path | None,
) -> list[Path | None]:
    """The file of each pipe that is there once it has passed, as it and what it reads are declared; None: no folder."""
    if passed_folder is None:
        return [None] * len(loaded_pipes)
    markers: list[Path | None] = []
    for loaded_pipe in loaded_pipes:
        source = loaded_pipe.pipe.source
        read_names = source.read_pipes if isinstance(source, StepSource) else ()
        declared_pipes = [loaded_pipe.pipe, *(pipes[name] for name in read_names)]
        text = " ".join([trigger, *(pipe.model_dump_json() for pipe in declared_pipes)])
        markers.append(passed_folder / hashlib.sha256(text.encode()).hexdigest()[:32])
    return markers
