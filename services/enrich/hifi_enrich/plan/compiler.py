"""All pipes as broadcast variables that a small constant plan calls into."""

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import Final

from hifi import log
from hifi.pipe.model import Pipe
from hifi.pipe.registry import PipeVersion
from hifi_enrich import sql
from hifi_enrich.catalyst import Catalyst, Java, SqlProblem
from hifi_enrich.lookup.key import table_id
from hifi_enrich.refuse import refusals
from hifi_enrich.udf import Call

GROUP: Final = 50
"""Pipes analysed in one go: a frame a pipe costs twice as much, a frame for all fails as one."""

_NO_VERSION: Final = -1
"""Of what stands in for a broken pipe: no version has it, so the pipe is compiled again with the next plan."""

logger = log.get(__name__)


@dataclass(frozen=True, slots=True)
class Compiled:
    """One version of a pipe, bound to the plan's rows."""

    name: str
    version: int
    fields: Java | None
    keys: tuple[Java, ...]
    slots: tuple[int, ...]
    """Lookups in each wave."""
    args: Java | None
    result: Java
    udf: Call | None
    known: PipeVersion | None
    """What it was compiled from; None where a failure stands in for it."""
    texts: sql.Texts


@dataclass(slots=True)
class Plan:
    """What a query is started with. Its broadcasts are its own; `tables` is not."""

    version: int
    """Newest version of any pipe that it knows: events of a newer one must not be handled by it."""
    index: Java
    """Broadcast of a HashMap from a pipe's name to its place."""
    fields: Java
    """Broadcast of copies of expressions by place, as `keys`, `args` and `result` are."""
    keys: list[tuple[Java, int]]
    """For each wave of lookups: broadcast of copies of expressions by place, and the most lookups of a pipe."""
    args: Java | None
    result: Java
    tables: Java
    """Broadcast of a HashMap from a table's id to a broadcast of a HashMap from a key to a row."""
    udfs: dict[int, Call] = field(default_factory=dict)
    """By place."""
    copies: int = 1
    """Tasks that can run at the same time without sharing an expression."""

    def broadcasts(self) -> list[Java]:
        """Its own broadcasts, to be destroyed once no query uses them any more."""
        return [
            self.index,
            self.result,
            *(keys for keys, _ in self.keys),
            *([self.args] if self.args else []),
        ]


@dataclass(frozen=True, slots=True)
class Served:
    """The tables that there are."""

    rows: Java
    """See `Plan.tables`."""
    ids: AbstractSet[str]


class Compiler:
    """Turns pipes into plans, and remembers what it compiled. Pipes of one template share its expressions."""

    def __init__(self, catalyst: Catalyst) -> None:
        self._catalyst = catalyst
        self._compiled: dict[str, Compiled] = {}
        self._expressions: dict[str, Java] = {}
        """By text."""
        self._sound: set[str] = set()
        """Users' texts with nothing in them that is refused."""

    def plan(
        self,
        pipes: Sequence[PipeVersion],
        version: int,
        tables: Served,
        copies: int,
        broken: Mapping[str, str],
    ) -> Plan:
        """A plan of all pipes.

        A pipe that Spark refuses goes on in the version that was compiled last; where there is none, its events become
        dead letters that say why.

        Args:
            pipes: every pipe in force.
            version: what the registry has read through.
            tables: that lookups are served from.
            copies: at least the partitions of the stream.
            broken: pipe to the reason why it cannot run, told from outside (a lookup that cannot be read).
        """
        compiled = self._compile(pipes, tables.ids, broken)
        place = self._catalyst.jvm.java.util.HashMap()
        for index, one in enumerate(compiled):
            place.put(one.name, index)
        waves = max((len(one.keys) for one in compiled), default=0)
        keys = [
            (
                self._spread([one.keys[wave] if wave < len(one.keys) else None for one in compiled], copies),
                max(one.slots[wave] for one in compiled if wave < len(one.slots)),
            )
            for wave in range(waves)
        ]
        udfs = {index: one.udf for index, one in enumerate(compiled) if one.udf is not None}
        fields = self._spread([one.fields for one in compiled], copies)
        args = self._spread([one.args for one in compiled], copies) if udfs else None
        result = self._spread([one.result for one in compiled], copies)
        return Plan(
            version, self._catalyst.broadcast(place), fields, keys, args, result, tables.rows, udfs, copies
        )

    def in_force(self) -> list[PipeVersion]:
        """The versions of pipes that the last plan was made of."""
        return [one.known for one in self._compiled.values() if one.known is not None]

    def _spread(self, expressions: Sequence[Java | None], copies: int) -> Java:
        return self._catalyst.broadcast(self._catalyst.copies(self._catalyst.array(expressions), copies))

    def _compile(
        self, pipes: Sequence[PipeVersion], tables: AbstractSet[str], broken: Mapping[str, str]
    ) -> list[Compiled]:
        fresh = [known for known in pipes if not self._usable(known.pipe.pipe, tables, known.version)]
        for start in range(0, len(fresh), GROUP):
            self._compile_group(fresh[start : start + GROUP], tables, broken)
        names = {known.pipe.pipe for known in pipes}
        self._compiled = {name: one for name, one in self._compiled.items() if name in names}
        self._forget()
        return [self._compiled[known.pipe.pipe] for known in pipes]

    def _forget(self) -> None:
        """Drop what no pipe in force has any more."""
        texts = {text for one in self._compiled.values() for text in one.texts.all()}
        self._expressions = {text: one for text, one in self._expressions.items() if text in texts}
        self._sound &= {text for known in self.in_force() for _, text in sql.user_texts(known.pipe)}

    def _usable(self, name: str, tables: AbstractSet[str], version: int | None = None) -> bool:
        """Whether a pipe has been compiled (in that version) and its lookups are there."""
        one = self._compiled.get(name)
        if one is None or one.known is None or (version is not None and version != one.version):
            return False
        return tables >= {table_id(lookup) for lookup in one.known.pipe.enrich.lookups.values()}

    def _compile_group(
        self, group: Sequence[PipeVersion], tables: AbstractSet[str], broken: Mapping[str, str]
    ) -> None:
        try:
            if any(known.pipe.pipe in broken for known in group):
                raise SqlProblem("at least one of them is broken")
            self._keep(group, [self._texts(known.pipe) for known in group])
        except SqlProblem:
            for known in group:
                self._compile_alone(known, tables, broken.get(known.pipe.pipe))

    def _compile_alone(self, known: PipeVersion, tables: AbstractSet[str], reason: str | None) -> None:
        name = known.pipe.pipe
        try:
            if reason is not None:
                raise SqlProblem(reason)
            self._keep([known], [self._texts(known.pipe)])
        except SqlProblem as problem:
            old = self._compiled[name].version if self._usable(name, tables) else None
            logger.warning(
                "pipe-broken", pipe=name, version=known.version, error=str(problem), goes_on_with=old
            )
            if old is None:
                failing = sql.Texts(None, (), None, None, sql.failing(f"pipe-broken: {problem}"))
                self._keep([PipeVersion(known.pipe, _NO_VERSION)], [failing])

    def _texts(self, pipe: Pipe) -> sql.Texts:
        for path, text in sql.user_texts(pipe):
            if text in self._sound:
                continue
            for problem in refusals(self._catalyst.parse(text)):
                raise SqlProblem(f"{path}: {problem}")
            self._sound.add(text)
        try:
            return sql.write(pipe)
        except ValueError as error:
            raise SqlProblem(f"the default of a lookup does not fit: {error}") from None

    def _keep(self, group: Sequence[PipeVersion], texts: Sequence[sql.Texts]) -> None:
        wanted = [text for one in texts for text in one.all()]
        fresh = list(dict.fromkeys(text for text in wanted if text not in self._expressions))
        if fresh:
            self._expressions |= zip(fresh, self._catalyst.compile(fresh), strict=True)
        expressions = iter([self._expressions[text] for text in wanted])
        for known, one in zip(group, texts, strict=True):
            fields = next(expressions) if one.fields else None
            keys = tuple(next(expressions) for _ in one.keys)
            args = next(expressions) if one.args else None
            udf = None
            if one.typed_args and known.pipe.enrich.udf:
                udf = Call(known.pipe.enrich.udf, self._catalyst.struct_type(next(expressions)))
            slots = tuple(len(names) for names in sql.lookup_waves(known.pipe.enrich)) if keys else ()
            compiled = Compiled(
                known.pipe.pipe,
                known.version,
                fields,
                keys,
                slots,
                args,
                next(expressions),
                udf,
                known if known.version != _NO_VERSION else None,
                one,
            )
            self._compiled[compiled.name] = compiled
