"""Run a service: settings, logs, uvloop, signals, health checks, draining."""

import asyncio
import gc
import signal
import sys
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

import uvloop

from hifi.runtime import log
from hifi.runtime.compiled import import_hook
from hifi.runtime.errors import Misconfigured
from hifi.runtime.health import Health, commit, version
from hifi.runtime.http.server import listen, serve
from hifi.runtime.http.trusted_hosts import TrustedHosts, split_hosts
from hifi.runtime.lifetime import Lifetime
from hifi.runtime.running import StoppedBeforeStart, cancel
from hifi.runtime.settings import ProcessSettings, load

S = TypeVar("S", bound=ProcessSettings)
logger = log.get(__name__)


class Service(Lifetime):
    """The running service, as its main function gets it: its health, and when to stop (on SIGTERM or SIGINT)."""

    def __init__(self, name: str, settings: ProcessSettings) -> None:
        super().__init__(Health(name, settings.instance))
        self.name = name

    def stop(self) -> None:
        """Begin to drain; calling it again does nothing."""
        if not self.stopping.is_set():
            self.health.state = "draining"
        super().stop()


def run(
    name: str,
    settings_type: type[S],
    main: Callable[[Service, S], Awaitable[None]],
    background_work: Callable[[Service, S], Coroutine[Any, Any, None]] | None = None,
) -> None:
    """Run a service until SIGTERM or SIGINT, then exit.

    The exit status is 0 after draining, 1 if draining took too long or the service failed, 2 if it is misconfigured.

    Args:
        name: of the service; its package is `hifi-<name>`.
        settings_type: read from the environment.
        main: blocks readiness before its first await, and returns when it has drained.
        background_work: runs from the start until main returns; the service fails with its error.
    """
    if "--version" in sys.argv[1:]:
        print(f"hifi-{name} {version(name)}" + (f" ({commit()})" if commit() else ""))
        sys.exit(0)
    try:
        settings = load(settings_type)
        _reduce_garbage_collection()
        log.configure(name, settings.instance, format=settings.log_format, level=settings.log_level)
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            status = runner.run(_run(name, settings, main, background_work))
    except Misconfigured as error:
        print(f"hifi-{name}: {error}", file=sys.stderr)
        status = 2
    sys.exit(status)


def _reduce_garbage_collection() -> None:
    """Search for reference cycles less often: it took 8 % of the CPU time, and batches have none."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)


async def _run(
    name: str,
    settings: S,
    main: Callable[[Service, S], Awaitable[None]],
    background_work: Callable[[Service, S], Coroutine[Any, Any, None]] | None,
) -> int:
    service = Service(name, settings)
    loop = asyncio.get_running_loop()
    for signal_number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(signal_number, service.stop)
    sock = listen(settings.host, settings.port)
    main_task = asyncio.ensure_future(main(service, settings))
    await asyncio.sleep(0)  # lets main block readiness, so that /readyz is never 200 too early
    app = TrustedHosts(service.health.app(), split_hosts(settings.health_hosts))
    async with serve(app, sock, drain_s=1):
        logger.info(
            "service-started",
            port=sock.getsockname()[1],
            **settings.log_fields(),
            compiled=import_hook.in_use(),
        )
        stop_task = asyncio.create_task(service.stopping.wait())
        background_task = (
            None if background_work is None else asyncio.create_task(background_work(service, settings))
        )
        if background_task is not None:
            service.watch(background_task)
        await asyncio.wait({main_task, stop_task}, return_when=asyncio.FIRST_COMPLETED)
        service.stop()
        _, unfinished_tasks = await asyncio.wait({main_task}, timeout=settings.drain_s)
        await cancel(background_task)
        if unfinished_tasks:
            logger.error("drain-timed-out", bound_s=settings.drain_s)
            main_task.cancel()
            await asyncio.wait({main_task}, timeout=2)
            return 1
        error = main_task.exception()
        if isinstance(error, StoppedBeforeStart):
            error = None
        if isinstance(error, Misconfigured):
            raise error
        if error is not None:
            logger.error("service-failed", exc_info=error)
            return 1
    logger.info("service-stopped")
    return 0
