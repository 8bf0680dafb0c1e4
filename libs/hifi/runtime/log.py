"""Structured logs: JSON lines, or readable lines on a terminal. A line is an event name with fields."""

import logging
import sys
from typing import Any, Literal, TextIO

import orjson
import structlog


def configure(
    service: str,
    instance: str,
    *,
    format: Literal["auto", "json", "console"] = "auto",  # noqa: A002 - as the setting is called
    level: str = "info",
    stream: TextIO | None = None,
) -> None:
    """Set up logging for this process, including the standard library's loggers (Kafka, HTTP), from warnings up.

    Args:
        service: name of the service, a field of every line.
        instance: name of the instance, a field of every line.
        format: `auto` is `console` on a terminal, else `json`.
        level: least level that is logged.
        stream: None: standard error.
    """
    stream = stream or sys.stderr
    shared_processors: list[Any] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.format_exc_info,
    ]
    as_json = format == "json" or (format == "auto" and not stream.isatty())
    renderer: Any = (
        structlog.processors.JSONRenderer(serializer=lambda obj, **_: orjson.dumps(obj, default=str).decode())
        if as_json
        else structlog.dev.ConsoleRenderer()
    )
    lowest_level = getattr(logging, level.upper())
    structlog.configure(
        processors=[*shared_processors, renderer],
        wrapper_class=structlog.make_filtering_bound_logger(lowest_level),
        logger_factory=structlog.PrintLoggerFactory(stream),
        cache_logger_on_first_use=True,
    )
    structlog.contextvars.bind_contextvars(service=service, instance=instance)
    handler = logging.StreamHandler(stream)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(processor=renderer, foreign_pre_chain=shared_processors)
    )
    logging.basicConfig(handlers=[handler], level=max(lowest_level, logging.WARNING), force=True)
    logging.getLogger("aiokafka_cooperative").setLevel(lowest_level)


def get(name: str) -> Any:
    """A logger for a module. Call it with the event name, then fields as keywords."""
    return structlog.get_logger(module=name)
