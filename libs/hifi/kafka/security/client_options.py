"""Options of Kafka clients, aiokafka's and Java's: bootstrap servers and security. No client is made without them.

The environment (`HIFI_KAFKA_SECURITY_…`) gives the security of a process. A process that starts a cluster of its own
(`hifi up`) or works on one (`hifi status --data`) names the security of that cluster with `use`.
"""

import functools
import ssl
from pathlib import Path
from typing import Any, Final

from hifi.kafka import uvloop_patch
from hifi.kafka.security import newest_credentials
from hifi.kafka.security.judged_brokers import JudgedProtocol
from hifi.kafka.security.oauth import ClientCredentials
from hifi.kafka.security.settings import PREFIX, KafkaSecurity, load_security
from hifi.runtime import log
from hifi.runtime.certificates import IN_USE, KAFKA_AUTHORITIES, KAFKA_CLIENT
from hifi.runtime.errors import Misconfigured

_by_address: Final[dict[str, KafkaSecurity]] = {}
_last_secrets: Final[dict[Path, str]] = {}
_last_contexts: Final[dict[KafkaSecurity, ssl.SSLContext]] = {}
_JAVA_LOGIN_MODULES: Final = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "OAUTHBEARER": "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule",
}
_JAVA_SCRAM: Final = "org.apache.kafka.common.security.scram.ScramLoginModule"
_JAVA_TOKENS: Final = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler"

logger = log.get(__name__)

uvloop_patch.apply()


def use(bootstrap: str, security: KafkaSecurity) -> None:
    """Use this security for every client of this process that is made for these bootstrap servers from now on."""
    _by_address[bootstrap] = security


def security_of(bootstrap: str) -> KafkaSecurity:
    """The security for these bootstrap servers: as given to `use`, else that of the environment.

    Raises:
        Misconfigured: the environment's is wrong.
    """
    return _by_address.get(bootstrap) or load_security()


def client_options(
    bootstrap: str, security: KafkaSecurity | None = None, pipe: str | None = None
) -> dict[str, Any]:
    """Options of an aiokafka client. Files are read now, and again for each connection that the client opens.

    Args:
        bootstrap: `HOST:PORT,…`.
        security: as a pipe declares it, so that the addresses of the servers are judged; None: that of the bootstrap
            servers, which the operator names.
        pipe: that declares it; None: only entries of the allowlist for all pipes hold.

    Raises:
        Misconfigured: a setting is wrong, or a file cannot be used.
    """
    from_pipe = security is not None
    security = security or security_of(bootstrap)
    options: dict[str, Any] = {"bootstrap_servers": bootstrap}
    if from_pipe:
        options["security_protocol"] = JudgedProtocol(security.protocol, pipe)
    elif security.protocol != "PLAINTEXT":
        options["security_protocol"] = security.protocol
    if security.protocol == "PLAINTEXT":
        return options
    if security.tls:
        if not from_pipe:
            _note_files(security)
        options["ssl_context"] = newest_credentials.context(functools.partial(_ssl_context, security))
    if security.sasl:
        options["sasl_mechanism"] = security.mechanism
        read_secret = functools.partial(_secret, security)
        if security.mechanism == "OAUTHBEARER":
            read_secret()  # a secret that cannot be read raises here, and not in each connection
            options["sasl_oauth_token_provider"] = ClientCredentials(
                security.token_url,
                security.user,
                read_secret,
                security.token_scope,
                from_pipe=from_pipe,
                pipe=pipe,
            )
        else:
            password = newest_credentials.password(read_secret)
            options |= {"sasl_plain_username": security.user, "sasl_plain_password": password}
    return options


def java_client_options(bootstrap: str, security: KafkaSecurity | None = None) -> dict[str, str]:
    """Options of Kafka's Java clients, without the prefix `kafka.` of Spark. They contain secrets: log none of them.

    Args:
        bootstrap: `HOST:PORT,…`.
        security: None: that of the bootstrap servers.

    Raises:
        Misconfigured: a setting is wrong, or a file cannot be used.
    """
    security = security or security_of(bootstrap)
    options = {"bootstrap.servers": bootstrap}
    if security.protocol == "PLAINTEXT":
        return options
    options["security.protocol"] = security.protocol
    if security.ca_file is not None:
        options |= {
            "ssl.truststore.type": "PEM",
            "ssl.truststore.certificates": _text(security.ca_file, "CA_FILE"),
        }
    if security.certificate_file is not None and security.key_file is not None:
        key = _text(security.key_file, "KEY_FILE")
        if "BEGIN PRIVATE KEY" not in key:
            raise Misconfigured(
                f"{PREFIX}KEY_FILE: {security.key_file} is not an unencrypted PKCS #8 key, which Spark needs: "
                f"convert it with `openssl pkcs8 -topk8 -nocrypt -in {security.key_file}`"
            )
        options |= {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.key": key,
            "ssl.keystore.certificate.chain": _text(security.certificate_file, "CERTIFICATE_FILE"),
        }
    return options | _java_sasl(security)


def _note_files(security: KafkaSecurity) -> None:
    """Note the certificates of the mesh's own Kafka, so that their expiry is reported."""
    if security.ca_file is not None:
        IN_USE.use_authorities(KAFKA_AUTHORITIES, security.ca_file)
    if security.certificate_file is not None:
        IN_USE.use_chain(KAFKA_CLIENT, security.certificate_file)


def _java_sasl(security: KafkaSecurity) -> dict[str, str]:
    if not security.sasl:
        return {}
    options: dict[str, str] = {"sasl.mechanism": security.mechanism}
    user, secret = _jaas(security.user), _jaas(_secret(security))
    if security.mechanism == "OAUTHBEARER":
        login = {"clientId": user, "clientSecret": secret}
        if security.token_scope:
            login["scope"] = _jaas(security.token_scope)
        options |= {
            "sasl.oauthbearer.token.endpoint.url": security.token_url,
            "sasl.login.callback.handler.class": _JAVA_TOKENS,
        }
    else:
        login = {"username": user, "password": secret}
    module = _JAVA_LOGIN_MODULES.get(security.mechanism, _JAVA_SCRAM)
    values = " ".join(f"{name}={value}" for name, value in login.items())
    return options | {"sasl.jaas.config": f"{module} required {values};"}


def _jaas(text: str) -> str:
    """A quoted value of a JAAS configuration."""
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _ssl_context(security: KafkaSecurity) -> ssl.SSLContext:
    """A context from the files as they are now; the last one that worked if one of them cannot be used now.

    Raises:
        Misconfigured: a file cannot be used, and none could before.
    """
    try:
        _last_contexts[security] = _read_context(security)
    except Misconfigured as error:
        if security not in _last_contexts:
            raise
        logger.warning("kafka-certificates-unreadable", error=str(error))
    return _last_contexts[security]


def _read_context(security: KafkaSecurity) -> ssl.SSLContext:
    """A context that verifies the broker's certificate and host name.

    Raises:
        Misconfigured: a file cannot be read or holds no certificate or key.
    """
    file, name = security.ca_file, "CA_FILE"
    try:
        context = ssl.create_default_context(cafile=file)
        if security.certificate_file is not None and security.key_file is not None:
            file, name = security.certificate_file, "CERTIFICATE_FILE"
            # Without a password OpenSSL would ask for one on the terminal.
            context.load_cert_chain(security.certificate_file, security.key_file, password=lambda: "")
    except ssl.SSLError as error:
        raise Misconfigured(
            f"{PREFIX}{name}: {file} cannot be used: {error.reason or error}; expected PEM, with the private key of "
            "the certificate, unencrypted, in a file of its own"
        ) from None
    except OSError as error:
        raise Misconfigured(f"{PREFIX}{name}: {file} cannot be read: {error.strerror}") from None
    return context


def _secret(security: KafkaSecurity) -> str:
    assert security.password_file is not None
    return _text(security.password_file, "PASSWORD_FILE").rstrip()


def _text(file: Path, name: str) -> str:
    """The content of a file; the content read last if there is none now, as while a secret is being replaced."""
    try:
        text = file.read_text("utf-8")
        problem = "" if text.strip() else "is empty"
    except (OSError, UnicodeDecodeError) as error:
        text = ""
        problem = f"cannot be read: {error.strerror if isinstance(error, OSError) else 'it is not text'}"
    if not problem:
        _last_secrets[file] = text
    elif file in _last_secrets:
        logger.warning("kafka-credentials-unreadable", file=str(file), problem=problem)
    else:
        raise Misconfigured(f"{PREFIX}{name}: {file} {problem}")
    return _last_secrets[file]
