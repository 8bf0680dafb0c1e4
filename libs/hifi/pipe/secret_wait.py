"""Wait at the start of a service until the secret manager has answered for the secrets of its pipes."""

import asyncio
from collections.abc import Iterable, Sequence
from typing import Final

from hifi.pipe.limits import pipe_limits
from hifi.pipe.model import Pipe
from hifi.pipe.named_secrets import secrets
from hifi.pipe.secret_manager import secret_memory
from hifi.runtime import log
from hifi.runtime.clock import monotonic_s
from hifi.runtime.errors import Misconfigured
from hifi.runtime.health import Health

_CONDITION: Final = "secrets"
_LOOK_S: Final = 0.5
_OTHERS_ANSWERED_S: Final = 30.0

logger = log.get(__name__)


async def wait_for_secrets(pipes: Iterable[Pipe], fields: Sequence[str], health: Health) -> None:
    """Return as soon as each secret in Vault that is granted was returned or refused; unready until then.

    After 30 s those suffice that the manager answers for, if there are any: it fails for the other ones alone, and what
    reads them says so.

    Args:
        pipes: that the service processes.
        fields: fields of `Pipe` whose secrets it reads.
        health: of the service.
    """
    secret_names = sorted(
        {
            secret.vault
            for pipe in pipes
            for field in fields
            for _, secret in secrets(getattr(pipe, field))
            if secret.vault is not None and secret.not_granted(pipe.pipe, pipe_limits()) is None
        }
    )
    try:
        memory = secret_memory() if secret_names else None
    except Misconfigured:  # the reader of such a secret says so
        memory = None
    logged_reason = ""
    started_s = monotonic_s()
    while memory is not None and (reasons := await asyncio.to_thread(memory.all_missing, secret_names)):
        reason = next(iter(reasons.values()))
        is_for_some_alone = memory.answers and len(reasons) < len(secret_names)
        if is_for_some_alone and monotonic_s() - started_s >= _OTHERS_ANSWERED_S:
            logger.error("secrets-missing", reason=reason, secrets=sorted(reasons))
            break
        health.block(_CONDITION, f"secrets of pipes cannot be read yet: {reason}")
        if reason != logged_reason:
            logger.warning("waiting-for-secrets", reason=reason)
        logged_reason = reason
        await asyncio.sleep(_LOOK_S)
    health.unblock(_CONDITION)
