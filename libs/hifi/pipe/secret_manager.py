"""Secrets of a secret manager, kept in memory: pipes are compiled and connections opened without waiting for it.

A secret is read from the manager when it is first asked for, and again every few seconds in a thread. While the manager
does not answer, the value read last is returned. `vault.py` has the only manager that there is today.
"""

import contextlib
import functools
import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final, Protocol

from hifi.runtime import log, metrics
from hifi.runtime.errors import HifiError, Misconfigured

MOST: Final = 1_000
"""Secrets that are kept; of more, those asked for longest ago are forgotten."""
_AGAIN_S: Final = 2.0
"""Time between reads while the manager does not answer, seconds."""
_ATTEMPTS: Final = 3
"""Unanswered reads after which a refresh ends."""

logger = log.get(__name__)


class SecretManager(Protocol):
    """Where secrets are. Called from several threads; blocks for a few seconds at most."""

    def read(self, name: str) -> str:
        """The content of a secret.

        Raises:
            Misconfigured: there is no such secret, or this process may not read it.
            Retryable: the manager cannot be asked now.
        """


@dataclass(frozen=True, slots=True)
class _LastAnswer:
    """The last answer for a secret: its value, or why there is none. Both are missing before the first answer."""

    value: str | None = None
    refused: Misconfigured | None = None
    unanswered: str = ""
    """Why the manager did not answer last; a value or refusal of before stays in use."""

    @property
    def unknown(self) -> bool:
        """Whether the manager has never answered for the secret."""
        return self.value is None and self.refused is None


class SecretMemory:
    """The secrets that were asked for, as the manager last returned them.

    Args:
        manager: to read from.
    """

    def __init__(self, manager: SecretManager) -> None:
        self._manager = manager
        self._kept: dict[str, _LastAnswer] = {}
        """By name, asked for longest ago first."""
        self._lock = threading.Lock()
        self._unanswered = ""
        """Why the manager did not answer last; empty: it did."""
        self._was_unanswered = False

    def get(self, name: str) -> str:
        """The content of a secret. It waits for the manager only at the first call, and not if the manager is away.

        Raises:
            Misconfigured: there is none, this process may not read it, or the manager has not answered yet.
        """
        with self._lock:
            kept = self._kept.pop(name, None)
            if kept is None and self._unanswered:
                kept = _LastAnswer(unanswered=self._unanswered)
            if kept is not None:
                self._keep(name, kept)
        if kept is None:
            kept = self._read(name)
        if kept.value is not None:
            return kept.value
        raise kept.refused or Misconfigured(kept.unanswered)

    def missing(self, names: Iterable[str]) -> str | None:
        """Why a secret can be neither returned nor refused yet, because the manager does not answer; None: none."""
        for name in names:
            with contextlib.suppress(Misconfigured):
                self.get(name)
            kept = self._kept.get(name)
            if kept is not None and kept.unknown:
                return kept.unanswered
        return None

    def refresh(self) -> None:
        """Read all secrets again. One that is gone or forbidden now is not returned any more."""
        with self._lock:
            names = list(self._kept)
        unanswered: list[str] = []
        for name in names:
            if kept := self._read(name).unanswered:
                unanswered.append(kept)
            if len(unanswered) == _ATTEMPTS:
                break
        metrics.SECRETS_NOT_READ.set(len(unanswered))
        reason = unanswered[0] if unanswered else ""
        if reason and not self._was_unanswered:
            logger.warning("secrets-not-refreshed", error=reason)
        elif self._was_unanswered and not reason:
            logger.info("secrets-refreshed", secrets=len(names))
        self._was_unanswered = bool(reason)
        self._unanswered = reason

    def follow(self, refresh_s: float) -> None:
        """Read the secrets again every `refresh_s` seconds, or 2 s while the manager is away, in a daemon thread."""

        def run() -> None:
            read_s = time.monotonic()
            while True:
                time.sleep(min(refresh_s, _AGAIN_S))
                if self._unanswered or time.monotonic() - read_s >= refresh_s:
                    try:
                        self.refresh()
                    except Exception:  # the next refresh may succeed
                        logger.exception("secrets-not-refreshed")
                    read_s = time.monotonic()

        threading.Thread(target=run, name="secrets", daemon=True).start()

    def _read(self, name: str) -> _LastAnswer:
        try:
            kept = _LastAnswer(self._manager.read(name))
        except Misconfigured as error:
            kept = _LastAnswer(refused=error)
        except (HifiError, OSError) as error:
            kept = _LastAnswer(unanswered=str(error))
        with self._lock:
            before = self._kept.get(name)
            if kept.unanswered:
                self._unanswered = kept.unanswered
                kept = kept if before is None else replace(before, unanswered=kept.unanswered)
            self._keep(name, kept)
        if before is not None and before.value is not None and kept.value != before.value:
            event = "secret-withdrawn" if kept.value is None else "secret-renewed"
            logger.info(event, secret=name, error=str(kept.refused or ""))
        return kept

    def _keep(self, name: str, kept: _LastAnswer) -> None:
        self._kept[name] = kept
        while len(self._kept) > MOST:
            del self._kept[next(iter(self._kept))]


@functools.cache
def secret_memory() -> SecretMemory:
    """The secrets of this process from the manager that its settings name.

    Raises:
        Misconfigured: they name none, or are wrong.
    """
    from hifi.pipe.vault import Vault, vault_settings

    settings = vault_settings()
    memory = SecretMemory(Vault(settings))
    memory.follow(settings.refresh_s)
    return memory
