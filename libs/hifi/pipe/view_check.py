"""Checks of what a view reads: whether its pipe's masks, limits and order allow it. Pure but for the limits."""

from collections.abc import Iterator
from typing import Final

from hifi.pipe.limits import PipeLimits
from hifi.pipe.mask import KeyedHash, composed
from hifi.pipe.model import MapRule, Pipe
from hifi.pipe.source import HttpSource
from hifi.pipe.sources.collected import Format
from hifi.pipe.view import View, ViewedTopic

Refusals = Iterator[tuple[tuple[str | int, ...], str]]
_ORDER_TIME: Final = "declare `order: time`, or let the pipe keep its order by this field"


def view_refusals(view: View, pipe: Pipe | None, limits: PipeLimits) -> Refusals:
    """Path in the view's YAML and reason of each thing that is refused.

    Args:
        view: as it is declared.
        pipe: that it reads, as it is declared; None: there is none.
        limits: of this process.
    """
    if reason := topic_refusal(view, limits):
        yield ("from", "at"), reason
    for index, key in enumerate(view.serve.keys):
        if reason := key.refusal(limits) or key.not_granted(view.from_.pipe, limits):
            yield ("serve", "keys", index), reason
    if pipe is None:
        yield ("from", "pipe"), f"there is no pipe {view.from_.pipe}; declare it beside the view"
        return
    for name in view.columns:
        if reason := _absent(name, view.from_.at, pipe):
            yield (("key",) if name in view.key else ("fields", name)), reason
    for name in view.key:
        if reason := _masked_key(name, view.from_.at, pipe):
            yield ("key",), reason
    if view.order == "offset" and (reason := unordered(view, pipe)):
        yield ("key",), f"{reason}; {_ORDER_TIME}"


def topic_refusal(view: View, limits: PipeLimits) -> str | None:
    """Why a view may not read its topic, whatever its pipe is; None: it may."""
    return limits.refuse_raw_view(view.view) if view.from_.at is ViewedTopic.RAW else None


def unordered(view: View, pipe: Pipe) -> str | None:
    """Why offsets do not order the events of a row: the key does not decide the partition. None: they do."""
    if len(view.key) != 1:
        return "offsets order the rows of one field only, and the key has several"
    path = getattr(pipe.source, "partition_key", None)
    if path is None:
        return (
            f"the source of the pipe {pipe.pipe} declares no partition_key, so offsets do not order its rows"
        )
    if isinstance(pipe.source, HttpSource) and Format.CLOUDEVENTS in pipe.source.formats:
        return (
            f"the pipe {pipe.pipe} accepts CloudEvents, whose senders choose the partition themselves "
            "(`formats: [json]` excludes them)"
        )
    (field,) = view.key
    if reason := _changed(field, view.from_.at, pipe):
        return reason
    sent_field = field if view.from_.at is ViewedTopic.RAW else _sent_field(field, pipe)
    if sent_field == path:
        return None
    source = "" if sent_field == field else f", from which normalize sets {field}"
    return f"the partition key of the pipe {pipe.pipe} is {path}, not {sent_field}{source}"


def _changed(field: str, topic: ViewedTopic, pipe: Pipe) -> str | None:
    """Why a field may have other values than were sent; None: it has not."""
    if topic is ViewedTopic.RAW:
        return None
    if pipe.normalize.function is not None:
        return f"a function of the pipe {pipe.pipe} may change {field}"
    if topic is ViewedTopic.ENRICHED and field in pipe.enrich.added():
        return f"enrich sets {field}, so it is not the partition key"
    rule = (pipe.normalize.fields or {}).get(field)
    if isinstance(rule, MapRule) and (
        rule.cast is not None or rule.time is not None or rule.default is not None
    ):
        return f"normalize converts {field}, so two partition keys can become one"
    return None


def _sent_field(field: str, pipe: Pipe) -> str:
    """The path from which normalize takes a field."""
    rule = (pipe.normalize.fields or {}).get(field, field)
    return (rule.from_ or field) if isinstance(rule, MapRule) else rule


def _absent(name: str, topic: ViewedTopic, pipe: Pipe) -> str | None:
    """Why no event has a field there; None: events may have it."""
    normalize = pipe.normalize
    if topic is ViewedTopic.RAW or normalize.fields is None or normalize.keep == "all":
        return None
    kept_fields = {path.partition(".")[0] for path in normalize.fields}
    if topic is ViewedTopic.ENRICHED:
        kept_fields |= pipe.enrich.added()
    return (
        None if name in kept_fields else f"the pipe {pipe.pipe} keeps mapped fields only, and {name} is none"
    )


def _masked_key(name: str, topic: ViewedTopic, pipe: Pipe) -> str | None:
    """Why a mask leaves nothing to name rows with; a hash names them as well as the value does."""
    masks = dict(pipe.source.mask.data) if pipe.source.mask else {}
    if topic is not ViewedTopic.RAW:
        masks |= pipe.normalize.mask
    mask = next((mask for path, mask in masks.items() if composed(path) == composed(name)), None)
    if mask is None or isinstance(mask, KeyedHash):
        return None
    return f"the pipe {pipe.pipe} masks {name} with `{mask}`, so it cannot name rows; hash it, or choose another key"
