"""State of a cluster in its data folder: its id, its size and its ports."""

import json
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from hifi.runtime.errors import Misconfigured
from hifi_infra.kafka.kraft import Ports, new_id
from hifi_infra.ports import LOOPBACK, free_port, is_free


@dataclass(frozen=True, slots=True)
class ClusterState:
    """The content of `cluster.json`."""

    cluster_id: str
    ports: tuple[Ports, ...]
    secure: bool = False


def load_cluster_state(
    data: Path, brokers: int, ports: Sequence[int], *, secure: bool = False
) -> ClusterState:
    """Load the state of the cluster in this folder, with ports that are free now; created at the first start.

    Args:
        data: the folder.
        brokers: number of brokers that the cluster must have.
        ports: client ports of the brokers; default: those of the last start while they are free.
        secure: whether clients must authenticate; fixed at the first start.

    Raises:
        Misconfigured: the folder holds a cluster of another size or security or an unreadable state, or a wanted port
            is in use.
    """
    file = data / "cluster.json"
    old_state = _read(file)
    if old_state is not None and len(old_state.ports) != brokers:
        raise Misconfigured(
            f"{data} holds a Kafka cluster of {len(old_state.ports)} broker(s), not {brokers}: "
            f"start it with {len(old_state.ports)}, or choose another data folder"
        )
    if old_state is not None and old_state.secure != secure:
        kind, option = ("a secured", "with") if old_state.secure else ("an unsecured", "without")
        raise Misconfigured(
            f"{data} holds {kind} Kafka cluster: start it {option} --secure, or choose another data folder"
        )
    state = ClusterState(
        old_state.cluster_id if old_state else new_id(),
        _choose(brokers, ports, old_state.ports if old_state else ()),
        secure,
    )
    if state != old_state:
        _write(file, state)
    return state


def _choose(brokers: int, ports: Sequence[int], old_ports: Sequence[Ports]) -> tuple[Ports, ...]:
    for port in ports:
        if not is_free(port):
            raise Misconfigured(
                f"port {port} of {LOOPBACK} is in use: end the program that listens there, or choose another port"
            )
    used_ports = set(ports)

    def pick(old_pair: int) -> int:
        is_reusable = old_pair > 0 and old_pair not in used_ports and is_free(old_pair)
        port = old_pair if is_reusable else free_port(but=used_ports)
        used_ports.add(port)
        return port

    chosen_ports = []
    for number in range(brokers):
        old_pair = old_ports[number] if old_ports else Ports(0, 0)
        broker = ports[number] if ports else pick(old_pair.broker)
        chosen_ports.append(Ports(broker, pick(old_pair.controller)))
    return tuple(chosen_ports)


def _read(file: Path) -> ClusterState | None:
    try:
        content = json.loads(file.read_text())
        ports = tuple(Ports(**broker_ports) for broker_ports in content["ports"])
        return ClusterState(content["cluster_id"], ports, content.get("secure", False))
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError) as error:
        raise Misconfigured(f"{file} is damaged ({error}): choose another data folder") from error


def _write(file: Path, state: ClusterState) -> None:
    temporary_file = file.with_suffix(".part")
    with temporary_file.open("w") as stream:
        json.dump(asdict(state), stream, indent=1)
        stream.flush()
        os.fsync(stream.fileno())
    temporary_file.replace(file)
