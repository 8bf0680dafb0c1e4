"""Finds in modules, functions and classes that are called pure: Kafka, tasks, clocks, chance and I/O.

A pure module does none of it in its own text. What it uses of other modules, and what that uses, does none of it
either: of an imported module only the definitions count that are reached, so the type of a value may stand beside the
client that reads it. Of a type that is only named, as of a parameter, only the methods count that are called.
"""

import ast
import functools
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final, NamedTuple, TypeAlias

_PURE: Final = re.compile(r"\bPure[.,:]")
_IMPURE: Final = frozenset(
    {
        *("aiodocker", "aiohttp", "aiokafka", "boto3", "confluent_kafka", "httpx"),
        *("psycopg.connect", "pyiceberg", "uvicorn", "uvloop"),
        *("asyncio", "concurrent", "multiprocessing", "signal", "subprocess", "threading"),
        *("random", "secrets", "time", "uuid.uuid1", "uuid.uuid4", "os.environ", "os.urandom"),
        *("select", "shutil", "smtplib", "socket", "ssl", "tempfile", "urllib.request"),
        *("hifi.runtime.clock", "hifi.runtime.health", "hifi.runtime.log", "hifi.runtime.metrics"),
        *(
            "hifi.runtime.http.server",
            "hifi.runtime.lifetime",
            "hifi.runtime.process",
            "hifi.runtime.service",
        ),
    }
)
"""Modules and names with Kafka, tasks, a clock, chance, the network, other processes or files."""
_CONSTANTS: Final = frozenset({"hifi.runtime.clock.MICROSECONDS"})
_READ_WITH_AN_ID: Final = frozenset(
    {"hifi.control.declaration.Declaration", "hifi.control.principals.audit.AuditEntry"}
)
"""Records with a random id by default; those that are read have one."""
_IMPURE_CALLS: Final = frozenset(
    {
        *("now", "today", "utcnow", "urandom", "uuid1", "uuid4", "getenv"),
        *("iterdir", "mkdir", "open", "print", "unlink"),
        *("read_bytes", "read_text", "write_bytes", "write_text"),
    }
)
"""Functions and methods with which a module reads a clock, chance or files."""

_FunctionNode: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef
_DefinitionNode: TypeAlias = _FunctionNode | ast.ClassDef


class Definition(NamedTuple):
    """A function, class or value at the top of a module."""

    module: str
    name: str

    def __str__(self) -> str:
        return f"{self.module}.{self.name}"


class _Module(NamedTuple):
    tree: ast.Module
    imports: Mapping[str, str]
    """Name in the module to the full name of what it imports, also in functions."""
    definitions: Mapping[str, list[ast.stmt]]


def is_called_pure(node: ast.Module | _DefinitionNode) -> bool:
    """Whether its docstring says that it is pure."""
    return _PURE.search(ast.get_docstring(node) or "") is not None


class Purity:
    """The purity of modules, by their sources."""

    def __init__(self, sources: Mapping[str, str]) -> None:
        """Read the sources, by full name of the module."""
        self._modules = {name: _read(name, ast.parse(source)) for name, source in sources.items()}

    def pure_modules(self) -> list[str]:
        """Names of the modules that are called pure."""
        return [name for name, module in self._modules.items() if is_called_pure(module.tree)]

    def pure_definitions(self) -> Iterator[tuple[str, _DefinitionNode]]:
        """Functions and classes that are called pure, with their modules."""
        for name, module in self._modules.items():
            for node in ast.walk(module.tree):
                if isinstance(node, _DefinitionNode) and is_called_pure(node):
                    yield name, node

    def own_impurities(self, module: str, node: ast.AST | None = None) -> set[str]:
        """Impure text of a module, or of a part of it."""
        node = node or self._modules[module].tree
        impurities: set[str] = set()
        for child in ast.walk(node):
            if isinstance(child, ast.AsyncFunctionDef | ast.Await):
                impurities.add("async")
            elif isinstance(child, ast.Import):
                impurities |= {alias.name for alias in child.names if _is_impure(alias.name)}
            elif isinstance(child, ast.ImportFrom):
                names = {f"{child.module}.{alias.name}" for alias in child.names}
                impurities |= {name for name in names if _is_impure(name)}
            elif isinstance(child, ast.Call):
                function = child.func
                name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
                if name in _IMPURE_CALLS:
                    impurities.add(f"{name}()")
        return impurities | {name for name in self._names(module, node) if _is_impure(name)}

    def reached_impurities(self, module: str, node: ast.AST | None = None) -> dict[str, list[str]]:
        """Impure definitions that a module, or a part of it, uses: the path to each, and what is impure in it."""
        node = node or self._modules[module].tree
        return self._impure_among(self._definitions(module, node)) | self._called_methods(module, node)

    def _impure_among(self, definitions: set[Definition]) -> dict[str, list[str]]:
        """Impure definitions among these and those that they use: the path to each, and what is impure in it."""
        paths: dict[Definition, tuple[Definition, ...]] = {
            definition: (definition,) for definition in definitions
        }
        unread = sorted(paths)
        impure: dict[str, list[str]] = {}
        while unread:
            definition = unread.pop()
            impurities, uses = self._uses_of(definition)
            if impurities:
                impure[" > ".join(map(str, paths[definition]))] = sorted(impurities)
                continue
            for used in sorted(uses - paths.keys()):
                paths[used] = (*paths[definition], used)
                unread.append(used)
        return impure

    def _called_methods(self, module: str, node: ast.AST) -> dict[str, list[str]]:
        """Impure methods of the types that are named, and of those of their fields, that are called."""
        called = {
            call.func.attr
            for call in ast.walk(node)
            if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute)
        }
        types: set[Definition] = set()
        unread = list(self._definitions(module, node, types=True))
        while unread:
            definition = unread.pop()
            if definition not in types:
                types.add(definition)
                unread += self._types_in(definition)
        return {
            f"{definition}.{name}()": sorted(impurities)
            for definition in types
            for name, impurities in self._impure_methods(definition).items()
            if name in called
        }

    @functools.cache  # noqa: B019 - it lives as long as the tests
    def _types_in(self, definition: Definition) -> frozenset[Definition]:
        return frozenset(
            named
            for class_ in self._classes(definition)
            for named in self._definitions(definition.module, class_, types=True)
        )

    @functools.cache  # noqa: B019 - it lives as long as the tests
    def _impure_methods(self, definition: Definition) -> dict[str, set[str]]:
        methods = {
            function.name: function
            for class_ in self._classes(definition)
            for function in class_.body
            if isinstance(function, _FunctionNode) and function.name != "__init__"
        }
        impure: dict[str, set[str]] = {}
        for name, function in methods.items():
            impurities = self.own_impurities(definition.module, function)
            impurities |= self._impure_among(
                self._definitions(definition.module, function) - {definition}
            ).keys()
            if impurities:
                impure[name] = impurities
        callers = {name: _names_of_self(function) for name, function in methods.items()}
        while indirect := {
            name: callees & impure.keys()
            for name, callees in callers.items()
            if name not in impure and callees & impure.keys()
        }:
            impure |= indirect
        return impure

    def _classes(self, definition: Definition) -> Iterator[ast.ClassDef]:
        for statement in self._modules[definition.module].definitions[definition.name]:
            if isinstance(statement, ast.ClassDef):
                yield statement

    @functools.cache  # noqa: B019 - it lives as long as the tests
    def _uses_of(self, definition: Definition) -> tuple[frozenset[str], frozenset[Definition]]:
        """What is impure in a definition, and the definitions that it uses."""
        impurities: set[str] = set()
        used: set[Definition] = set()
        if str(definition) not in _CONSTANTS | _READ_WITH_AN_ID:
            for statement in self._modules[definition.module].definitions[definition.name]:
                impurities |= self.own_impurities(definition.module, statement)
                used |= self._definitions(definition.module, statement)
        return frozenset(impurities), frozenset(used - {definition})

    def _definitions(self, module: str, node: ast.AST, *, types: bool = False) -> set[Definition]:
        reached_names = self._names(module, node, types=types)
        return {definition for name in reached_names if (definition := self._resolve(name)) is not None}

    def _names(self, module: str, node: ast.AST, *, types: bool = False) -> Iterator[str]:
        """Full names of what a part of a module uses: as values, or as types only."""
        _, imports, definitions = self._modules[module]
        annotations = _annotations(node)
        for child in ast.walk(node):
            if isinstance(child, ast.Name | ast.Attribute) and (id(child) in annotations) == types:
                first, *attributes = _dotted(child) or [""]
                if first in imports:
                    yield ".".join([imports[first], *attributes])
                elif first in definitions:
                    yield f"{module}.{first}"

    def _resolve(self, full_name: str) -> Definition | None:
        """The definition of a name, also through modules that only pass it on; None: it is not of these modules."""
        parts = full_name.split(".")
        for length in range(len(parts) - 1, 0, -1):
            name, first, further = ".".join(parts[:length]), parts[length], parts[length + 1 :]
            if name in self._modules:
                _, imports, definitions = self._modules[name]
                if first in definitions:
                    return Definition(name, first)
                target = ".".join([imports.get(first, full_name), *further])
                return None if target == full_name else self._resolve(target)
        return None


def module_sources(root: Path, files: Iterable[Path]) -> dict[str, str]:
    """The sources of the modules of packages, by full name.

    Args:
        root: of the repository.
        files: below it.
    """
    sources = {}
    for file in files:
        folders = [folder for folder in file.parents if (folder / "__init__.py").exists()]
        if folders:
            name = ".".join(file.relative_to(folders[-1].parent).with_suffix("").parts)
            sources[name.removesuffix(".__init__")] = file.read_text("utf-8")
    return sources


def _read(name: str, tree: ast.Module) -> _Module:
    imports: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                first = alias.name.partition(".")[0]
                imports[alias.asname or first] = alias.name if alias.asname else first
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"{name} has a relative import"
            imports |= {alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names}
    definitions: defaultdict[str, list[ast.stmt]] = defaultdict(list)
    for statement in _statements(tree.body):
        if isinstance(statement, _DefinitionNode):
            definitions[statement.name].append(statement)
        elif isinstance(statement, ast.Assign | ast.AnnAssign | ast.AugAssign):
            targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
            for node in (node for target in targets for node in ast.walk(target)):
                if isinstance(node, ast.Name):
                    definitions[node.id].append(statement)
    return _Module(tree, imports, definitions)


def _statements(body: Iterable[ast.stmt]) -> Iterator[ast.stmt]:
    """The statements at the top of a module, also those under a condition."""
    for statement in body:
        yield statement
        if isinstance(statement, ast.If | ast.Try | ast.With):
            yield from _statements(
                child for child in ast.iter_child_nodes(statement) if isinstance(child, ast.stmt)
            )


def _annotations(node: ast.AST) -> set[int]:
    """Ids of the nodes that stand for types."""
    annotations: list[ast.expr | None] = []
    for child in ast.walk(node):
        if isinstance(child, ast.arg | ast.AnnAssign):
            annotations.append(child.annotation)
        elif isinstance(child, _FunctionNode):
            annotations.append(child.returns)
    return {id(child) for annotation in annotations if annotation for child in ast.walk(annotation)}


def _names_of_self(function: _FunctionNode) -> set[str]:
    return {
        node.attr
        for node in ast.walk(function)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "self"
    }


def _dotted(node: ast.expr) -> list[str] | None:
    """The words of `a.b.c`; None: it does not begin with a name."""
    attributes = []
    while isinstance(node, ast.Attribute):
        attributes.append(node.attr)
        node = node.value
    return [node.id, *reversed(attributes)] if isinstance(node, ast.Name) else None


def _is_impure(name: str) -> bool:
    words = name.split(".")
    prefixes = {".".join(words[:length]) for length in range(1, len(words) + 1)}
    return not prefixes & _CONSTANTS and bool(prefixes & _IMPURE)
