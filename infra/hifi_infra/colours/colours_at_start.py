"""The record of the colours that their runner writes at a start. Pure."""

from collections.abc import Mapping
from dataclasses import replace

from hifi.delivery.colours import NAMES, WHOLE_SHARE, Colour, Colours, ColourState, FrontAddress


def colours_at_start(
    before: Colours | None,
    colours: Mapping[str, Colour],
    fronts: tuple[FrontAddress, ...],
    at_ms: int,
    actor: str,
) -> Colours:
    """All as before but the addresses, which are as they are now; without a record the first colour gets everything.

    Args:
        before: the newest record; None: there is none.
        colours: name to colour with its addresses; an empty address of Kafka is taken from the record before.
        fronts: addresses of the fronts.
        at_ms: now, milliseconds since 1970 UTC.
        actor: name of their runner.
    """
    colours_before = before.colours if before is not None else {}
    colours_now = {}
    for name, colour in colours.items():
        if name in colours_before:
            colour_before = colours_before[name]
            colours_now[name] = replace(
                colour_before,
                ingest=colour.ingest,
                observe=colour.observe,
                kafka=colour.kafka or colour_before.kafka,
            )
        else:
            share = WHOLE_SHARE * (name == NAMES[0])
            colours_now[name] = replace(
                colour, share=share, state=ColourState.ACTIVE if share else ColourState.IDLE
            )
    return Colours(colours_now, fronts, at_ms, actor)
