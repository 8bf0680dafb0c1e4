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
_RETRY_S: Final = 2.0
"""Time between reads while the manager does not answer, seconds."""
_ATTEMPTS: Final = 3
"""Unanswered reads after which a refresh ends."""

logger = log.get(__name__)


class SecretManager(Protocol):
    """The place of secrets. Called from several threads; blocks for a few seconds at most."""

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
    read_s: float = 0.0
    """When it was asked last, monotonic clock; 0: it was not."""

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
        self._answers: dict[str, _LastAnswer] = {}
        """By name, asked for longest ago first."""
        self._lock = threading.Lock()
        self._unanswered = ""
        """Why the manager did not answer last; empty: it did."""
        self._was_unanswered = False
        self._stopped = threading.Event()

    def get(self, name: str) -> str:
        """The content of a secret. It waits for the manager only at the first call, and not if the manager is away.

        Raises:
            Misconfigured: there is none, this process may not read it, or the manager has not answered yet.
        """
        with self._lock:
            answer = self._answers.pop(name, None)
            if answer is None and self._unanswered:
                answer = _LastAnswer(unanswered=self._unanswered)
            if answer is not None:
                self._store(name, answer)
        if answer is None:
            answer = self._read(name)
        if answer.value is not None:
            return answer.value
        raise answer.refused or Misconfigured(answer.unanswered)

    @property
    def answers(self) -> bool:
        """Whether the manager answered for some secret when they were read last."""
        return not self._unanswered

    def missing(self, names: Iterable[str]) -> str | None:
        """Why a secret can be neither returned nor refused yet, because the manager does not answer; None: none."""
        return next(iter(self.all_missing(names).values()), None)

    def all_missing(self, names: Iterable[str]) -> dict[str, str]:
        """Those secrets that can be neither returned nor refused yet, each with why the manager does not answer."""
        reasons: dict[str, str] = {}
        for name in names:
            with contextlib.suppress(Misconfigured):
                self.get(name)
            answer = self._answers.get(name)
            if answer is not None and answer.unknown:
                reasons[name] = answer.unanswered
        return reasons

    def refresh(self) -> None:
        """Read all secrets again. One that is gone or forbidden now is not returned any more.

        Those that the manager did not answer for come last, in turns: it may fail for them alone.
        """
        with self._lock:
            answers = dict(self._answers)
        reasons: list[str] = []
        is_answered = False
        for name in sorted(answers, key=lambda name: (bool(answers[name].unanswered), answers[name].read_s)):
            if reason := self._read(name).unanswered:
                reasons.append(reason)
            else:
                is_answered = True
            if len(reasons) == _ATTEMPTS:
                break
        metrics.SECRETS_NOT_READ.set(len(reasons))
        reason = reasons[0] if reasons else ""
        if reason and not self._was_unanswered:
            logger.warning("secrets-not-refreshed", error=reason)
        elif self._was_unanswered and not reason:
            logger.info("secrets-refreshed", secrets=len(answers))
        self._was_unanswered = bool(reason)
        self._unanswered = "" if is_answered else reason

    def follow(self, refresh_s: float) -> None:
        """Read the secrets again every `refresh_s` seconds, or 2 s while the manager is away, in a daemon thread."""

        def refresh_repeatedly() -> None:
            read_s = time.monotonic()
            while not self._stopped.wait(min(refresh_s, _RETRY_S)):
                if self._unanswered or self._was_unanswered or time.monotonic() - read_s >= refresh_s:
                    try:
                        self.refresh()
                    except Exception:  # the next refresh may succeed
                        logger.exception("secrets-not-refreshed")
                    read_s = time.monotonic()

        threading.Thread(target=refresh_repeatedly, name="secrets", daemon=True).start()

    def stop(self) -> None:
        """End the thread of `follow`."""
        self._stopped.set()

    def _read(self, name: str) -> _LastAnswer:
        read_s = time.monotonic()
        try:
            answer = _LastAnswer(self._manager.read(name), read_s=read_s)
        except Misconfigured as error:
            answer = _LastAnswer(refused=error, read_s=read_s)
        except (HifiError, OSError) as error:
            answer = _LastAnswer(unanswered=str(error), read_s=read_s)
        with self._lock:
            earlier_answer = self._answers.get(name)
            if answer.unanswered:
                self._unanswered = answer.unanswered
                if earlier_answer is not None:
                    answer = replace(earlier_answer, unanswered=answer.unanswered, read_s=read_s)
            self._store(name, answer)
        if (
            earlier_answer is not None
            and earlier_answer.value is not None
            and answer.value != earlier_answer.value
        ):
            event = "secret-withdrawn" if answer.value is None else "secret-renewed"
            logger.info(event, secret=name, error=str(answer.refused or ""))
        return answer

    def _store(self, name: str, answer: _LastAnswer) -> None:
        self._answers[name] = answer
        while len(self._answers) > MOST:
            del self._answers[next(iter(self._answers))]


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
