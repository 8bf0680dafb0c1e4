"""Signs what observe posts, as Standard Webhooks says."""

from pathlib import Path
from typing import Final

from standardwebhooks import Webhook

from hifi.runtime.errors import Misconfigured
from hifi.runtime.settings import read_secret

VARIABLE: Final = "HIFI_OBSERVE_WEBHOOK_SECRET_FILE"


def webhook_signer(file: Path | None) -> Webhook | None:
    """Makes signatures with the secret in a file; None: no file is set.

    Raises:
        Misconfigured: the file cannot be read, or has no valid secret.
    """
    if file is None:
        return None
    secret = read_secret(file, VARIABLE)
    try:
        return Webhook(secret)
    except Exception as error:  # noqa: BLE001 - the library's error derives from nothing narrower
        raise Misconfigured(
            f"{VARIABLE}: {file} does not hold a Standard Webhooks secret (`whsec_…`): {error}"
        ) from None
