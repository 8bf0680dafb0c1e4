"""Tracing as the settings ask for it. OpenTelemetry is imported only if an endpoint is configured."""

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from hifi_observe.settings import ObserveSettings
from hifi_observe.traces.event_tracer import EventTracer

if TYPE_CHECKING:
    from hifi_observe.traces.otlp_exporter import OtlpExporter

_STOP_S: Final = 3


class Tracing:
    """Makes and exports the spans of sampled events.

    Args:
        settings: of the service.
        hides_id: returns whether the event ids of a pipe come from a masked field.
    """

    def __init__(self, settings: ObserveSettings, hides_id: Callable[[str], bool]) -> None:
        self.tracer: EventTracer | None = None
        """None: no endpoint is configured."""
        self._exporter: OtlpExporter | None = None
        if settings.observe_otlp_endpoint:
            self._start(settings, hides_id)

    async def stop(self) -> None:
        """Export the remaining spans, within 3 s."""
        if self._exporter is not None:
            await asyncio.to_thread(self._exporter.stop, _STOP_S)

    def _start(self, settings: ObserveSettings, hides_id: Callable[[str], bool]) -> None:
        from hifi_observe.traces.otlp_exporter import OtlpExporter

        self._exporter = OtlpExporter(settings.observe_otlp_endpoint, settings.stream)
        share, max_per_s = settings.observe_otlp_share, settings.observe_otlp_max_per_s
        self.tracer = EventTracer(settings.topics, share, max_per_s, self._exporter.put, hides_id)
