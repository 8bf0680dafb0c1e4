"""Momentary figures of many pipes, in pieces that a record has room for. Pure."""

from collections.abc import Iterable, Mapping
from typing import Any, Final

MOST_PIPES: Final = 500
"""Pipes in a piece, each of which has a record of about 1 kB, and more with many destinations."""
_BY_PIPE: Final = ("counts", "revisions", "dead_letters", "lags", "sources", "steps")
"""Figures that map a pipe to something."""
_ROWS: Final = ("waiting", "streaks", "successes", "breakers", "source_deleted")
"""Figures in rows that begin with a pipe."""


def pieces_of(figures_json: dict[str, Any], most_pipes: int = MOST_PIPES) -> list[dict[str, Any]]:
    """The figures of a partition number in pieces.

    Args:
        figures_json: as `hifi_observe.live.figures.of_ledger` returned them.
        most_pipes: in a piece.

    Returns:
        The first has what concerns no pipe, too; it is the only one where there are few pipes.
    """
    pipes = sorted(
        {pipe for name in _BY_PIPE for pipe in figures_json.get(name, ())}
        | {row[0] for name in _ROWS for row in figures_json.get(name, ())}
    )
    if len(pipes) <= most_pipes:
        return [figures_json]
    pieces = [
        _of_pipes(figures_json, frozenset(pipes[start : start + most_pipes]))
        for start in range(0, len(pipes), most_pipes)
    ]
    further_pieces = [{"at": figures_json["at"]} | piece for piece in pieces[1:]]
    return [figures_json | pieces[0] | {"pieces": len(pieces)}, *further_pieces]


def joined(first_piece: dict[str, Any], further_pieces: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """The figures of all pieces; those of another publication are left out."""
    figures_json = dict(first_piece)
    for piece in further_pieces:
        if piece["at"] != first_piece["at"]:
            continue
        for name in _BY_PIPE:
            if name in piece:
                figures_json[name] = {**figures_json.get(name, {}), **piece[name]}
        for name in _ROWS:
            if name in piece:
                figures_json[name] = [*figures_json.get(name, ()), *piece[name]]
    return figures_json


def _of_pipes(figures_json: Mapping[str, Any], pipes: frozenset[str]) -> dict[str, Any]:
    piece: dict[str, Any] = {
        name: {pipe: figures for pipe, figures in figures_json[name].items() if pipe in pipes}
        for name in _BY_PIPE
        if name in figures_json
    }
    rows = {
        name: [row for row in figures_json[name] if row[0] in pipes] for name in _ROWS if name in figures_json
    }
    return piece | rows
