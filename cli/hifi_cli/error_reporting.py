"""Report the failure of a command: one clear message instead of a traceback, and an exit status."""

import asyncio
import functools
import inspect
from collections.abc import Callable, Coroutine
from typing import Any, Final, ParamSpec

import typer
from rich.markup import escape

from hifi.runtime import log
from hifi.runtime.errors import HifiError
from hifi_cli.display.console import errors

P = ParamSpec("P")
logger = log.get(__name__)
FAILED: Final = 1
INTERRUPTED: Final = 130


def report_errors(command: Callable[P, None] | Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    """Decorate a command: run it (in an event loop if it is a coroutine function) and report its failure.

    Exit status: 0 success, 1 failure, 2 wrong usage, 130 interrupted by Ctrl-C.
    """

    @functools.wraps(command)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        try:
            result = command(*args, **kwargs)
            if inspect.iscoroutine(result):
                asyncio.run(result)
        except HifiError as error:
            errors.print(f"[bold red]error:[/] {escape(str(error))}", soft_wrap=True)
            raise typer.Exit(FAILED) from None
        except KeyboardInterrupt:
            errors.print("interrupted")
            raise typer.Exit(INTERRUPTED) from None
        except BrokenPipeError:  # the program that reads our output, such as `head`, has closed it
            raise typer.Exit(FAILED) from None
        except typer.Exit:
            raise
        except Exception as error:
            logger.exception("command-failed")
            if not isinstance(error, OSError):
                errors.print(
                    "[bold red]error:[/] unexpected error; run `hifi --verbose …` to see the traceback"
                )
            errors.print(f"[bold red]error:[/] {escape(f'{type(error).__name__}: {error}')}", soft_wrap=True)
            raise typer.Exit(FAILED) from None

    return run
