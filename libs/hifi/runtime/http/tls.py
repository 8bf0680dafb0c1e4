"""TLS of an HTTP server: the certificate is read again when its files change, so that a renewal needs no restart."""

import asyncio
import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from hifi.runtime import log
from hifi.runtime.certificates import IN_USE, SERVER
from hifi.runtime.errors import Misconfigured
from hifi.runtime.health import Health

_LOOK_S: Final = 5.0
"""Time between looks at the files, seconds."""
_WARNING: Final = "tls-certificate"
HSTS: Final = ("strict-transport-security", "max-age=31536000")
"""Header of every response over TLS: browsers use https for this name for a year."""
TLS_SETTINGS: Final = tuple(
    f"HIFI_{service}_TLS_{part}_FILE"
    for service in ("INGEST", "MANAGE", "OBSERVE", "VIEW")
    for part in ("CERTIFICATE", "KEY")
)
"""Names of the settings of all services that serve TLS."""

logger = log.get(__name__)


class ServerCertificate:
    """The certificate of a server and its key, as their files have them now."""

    def __init__(self, chain: Path, key: Path, health: Health) -> None:
        """Read the files.

        Args:
            chain: PEM file with the server's certificate, then those of the authorities between it and the root.
            key: PEM file with the private key, without a password.
            health: shows a warning while changed files cannot be used; the certificate read before stays in use.

        Raises:
            Misconfigured: a file cannot be read, or the key is not that of the certificate.
        """
        self.chain: Final = chain
        self.key: Final = key
        self._health = health
        IN_USE.use_chain(SERVER, chain)
        self._version = self._file_states()
        self.context: ssl.SSLContext = self._read()
        """For new connections."""

    def refresh(self) -> None:
        """Read the files again if they have changed. A pair that cannot be used is left out with a warning."""
        version = self._file_states()
        if version == self._version:
            return
        self._version = version
        try:
            self.context = self._read()
        except Misconfigured as error:
            logger.warning("tls-certificate-unusable", error=str(error))
            self._health.warn(_WARNING, f"{error}; the certificate read before is still in use")
            return
        logger.info("tls-certificate-renewed", file=str(self.chain))
        self._health.warn(_WARNING, None)

    async def follow(self) -> None:
        """Refresh every 5 s, until cancelled."""
        while True:
            await asyncio.sleep(_LOOK_S)
            self.refresh()

    def _file_states(self) -> tuple[tuple[int, int, int], ...]:
        """State of each file, which changes with its content, also behind the links of Kubernetes' secrets."""
        states = []
        for file in (self.chain, self.key):
            try:
                file_stat = file.stat()
                states.append((file_stat.st_mtime_ns, file_stat.st_size, file_stat.st_ino))
            except OSError:
                states.append((0, 0, 0))
        return tuple(states)

    def _read(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.set_alpn_protocols(["http/1.1"])
        try:
            context.load_cert_chain(self.chain, self.key, _no_password)
        except (OSError, ValueError) as error:
            raise Misconfigured(
                f"the certificate {self.chain} with the key {self.key} cannot be used: {error}; "
                "name PEM files of a certificate chain and of its key without a password"
            ) from None
        return context


def _no_password() -> str:
    """Called for a key with a password, where OpenSSL would ask on the terminal."""
    raise ValueError("the key has a password")


def server_certificate(chain: Path | None, key: Path | None, health: Health) -> ServerCertificate | None:
    """The certificate that a service's settings name; None: it serves plain HTTP.

    Raises:
        Misconfigured: only one of the files is named, or they cannot be used.
    """
    if chain is None and key is None:
        return None
    if chain is None or key is None:
        raise Misconfigured("TLS needs both files: set …_TLS_CERTIFICATE_FILE and …_TLS_KEY_FILE, or neither")
    return ServerCertificate(chain, key, health)


def refuse_tls_settings(environment: Mapping[str, str]) -> None:
    """Refuse settings of TLS for a mesh of processes on one machine, whose commands use plain HTTP on loopback.

    Raises:
        Misconfigured: one of them is set.
    """
    for name in TLS_SETTINGS:
        if environment.get(name):
            raise Misconfigured(
                f"{name} is set, but this mesh serves plain HTTP on loopback; unset it, or run the services "
                "with Compose or your own deployment"
            )
