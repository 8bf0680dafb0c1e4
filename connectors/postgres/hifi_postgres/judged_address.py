"""Pins connections to PostgreSQL to addresses that are allowed."""

from collections.abc import Mapping
from typing import Any, Final

from hifi.runtime.egress import EgressKind, EgressRefused, egress
from hifi.runtime.errors import Retryable

_PORT: Final = "5432"


async def with_judged_addresses(options: Mapping[str, Any], pipe: str) -> dict[str, Any]:
    """The options of a connection with `hostaddr`, so that libpq resolves no name; `host` is for certificates.

    Args:
        options: of libpq; several hosts are separated by commas.
        pipe: for which they are judged.

    Raises:
        Retryable: an address is not allowed, or a name has none.
    """
    hosts = str(options.get("hostaddr") or options.get("host") or "").split(",")
    ports = str(options.get("port") or _PORT).split(",")
    host_names = str(options.get("host") or "").split(",")
    judged_addresses, pinned_ports, pinned_names = [], [], []
    egress_rules = egress(pipe)
    try:
        for index, host in enumerate(hosts):
            port = (ports[index] if len(ports) > 1 else ports[0]) or _PORT
            name = host_names[index] if len(host_names) == len(hosts) else host
            if not host or host.startswith(("/", "@")):  # a socket of this machine
                if reason := egress_rules.refusal(
                    EgressKind.DATABASE, host or "localhost", "127.0.0.1", int(port)
                ):
                    raise EgressRefused(reason)
                judged_addresses.append("")
                pinned_ports.append(port)
                pinned_names.append(host)
                continue
            for info in await egress_rules.addresses(EgressKind.DATABASE, host, int(port)):
                judged_addresses.append(info[4][0])
                pinned_ports.append(port)
                pinned_names.append(name)
    except OSError as error:
        raise Retryable(f"PostgreSQL cannot be reached: {error}") from error
    if not any(judged_addresses):
        return dict(options)
    return {
        **options,
        "host": ",".join(pinned_names),
        "hostaddr": ",".join(judged_addresses),
        "port": ",".join(pinned_ports),
    }
