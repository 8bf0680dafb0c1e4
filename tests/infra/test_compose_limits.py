"""The Compose file limits what pipes may name and reach, as docs/security.md says."""

import ipaddress
import re
from pathlib import Path
from typing import Any, Final

import pytest
from ruamel.yaml import YAML

from hifi.control.principals.oidc.settings import PREFIX as OIDC
from hifi.control.principals.oidc.settings import OidcSettings
from hifi.pipe.limits import PREFIX, PipeLimits
from hifi.runtime.egress import VARIABLE, Egress, EgressKind, read_allowed

ROOT: Final = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def compose() -> Any:
    """compose.yaml."""
    return YAML(typ="safe").load(ROOT / "infra/compose.yaml")


def test_each_limit_is_set_and_in_the_table_of_the_docs(compose: Any) -> None:
    variables = {PREFIX + name.upper() for name in PipeLimits.model_fields}
    assert variables - compose["x-environment"].keys() == set()
    documented = set(re.findall(rf"`({PREFIX}[A-Z_]+)`", (ROOT / "docs/security.md").read_text()))
    assert variables - documented == set()


def test_both_consoles_get_the_settings_of_sign_in_with_a_provider(compose: Any) -> None:
    variables = {OIDC + name.upper() for name in OidcSettings.model_fields} - {f"{OIDC}CA_FILE"}
    for name in ("observe", "manage"):
        service = compose["services"][name]
        assert variables <= service["environment"].keys()
        assert "oidc_client_secret" in service["secrets"]
    assert "make_secret oidc_client_secret" in (ROOT / "infra/docker/secrets.sh").read_text()


def test_the_policies_of_the_chart_except_what_pipes_may_not_reach() -> None:
    template = (ROOT / "infra/helm/hifi/templates/_network.tpl").read_text("utf-8")
    [list_text] = re.findall(r"except: \[(.*)\]", template)
    excepted_networks = [ipaddress.ip_network(text.strip()) for text in list_text.split(",")]
    [cidr] = re.findall(r"cidr: (\S*::\S*)", template)
    judge = Egress()
    addresses = [ipaddress.ip_address(0xA9FEA9FE)]
    addresses += [
        ipaddress.ip_address(text)
        for text in (
            "168.63.129.16",
            "192.0.0.192",
            "169.254.170.23",
            "100.100.100.200",
            "198.18.0.1",
            "192.0.2.1",
        )
    ]
    for address in addresses:
        assert judge.refusal(EgressKind.HTTP, "a", str(address), 80), address
        assert any(address in network for network in excepted_networks), address
    for text in ("8.8.8.8", "1.1.1.1", "168.63.129.17"):
        assert not any(ipaddress.ip_address(text) in network for network in excepted_networks)
    assert ipaddress.ip_address("fd00:ec2::254") not in ipaddress.ip_network(cidr)


def test_kafka_connect_shares_a_network_with_kafka_and_collect_only(compose: Any) -> None:
    services = compose["services"]
    assert services["connect"]["networks"] == ["connect"]
    attached_services = {
        name for name, service in services.items() if "connect" in service.get("networks", ())
    }
    assert attached_services == {"connect", "kafka", "collect"}
    assert "ports" not in services["connect"]


def test_the_credentials_of_kafka_connect_are_no_secret_that_a_pipe_may_name(compose: Any) -> None:
    environment, services = compose["x-environment"], compose["services"]
    limits = {
        name[len(PREFIX) :].lower(): str(value)
        for name, value in environment.items()
        if name.startswith(PREFIX)
    }
    folders = [Path(folder) for folder in limits["secret_folders"].split(":")]
    for name, service in services.items():
        secrets = [secret for secret in service.get("secrets", ()) if isinstance(secret, dict)]
        targets = [Path(secret["target"]) for secret in secrets if secret["source"] == "connect_credentials"]
        assert bool(targets) == (name in {"connect", "collect"})
        assert all(not target.is_relative_to(folder) for target in targets for folder in folders)


@pytest.mark.parametrize(
    ("name", "variable"), [("collect", "HIFI_COLLECT_TEMP"), ("state", "HIFI_STATE_DATA"), ("view", None)]
)
def test_what_may_be_large_is_on_a_volume_that_the_service_may_write(
    compose: Any, name: str, variable: str | None
) -> None:
    service = compose["services"][name]
    folder = service["environment"][variable] if variable else "/views"  # of the image
    if name == "collect":  # images of earlier releases have no such folder
        [folder] = re.findall(rf"^\$\{{{variable}:-(.*)\}}$", folder)
    assert folder in service["volumes"]
    [line] = re.findall(r"case .*OWNED.*", (ROOT / "infra/docker/images.sh").read_text("utf-8"))
    owned_folders = {
        owned.replace("$image", image)
        for images, owned in re.findall(r"(?:in|;;) ([\w |]+)\) .*?OWNED=([^\s\")]+)", line)
        for image in images.split(" | ")
    }
    assert folder in owned_folders


@pytest.mark.parametrize(
    ("kind", "host", "port", "allowed"),
    [
        (EgressKind.HTTP, "destination", 9100, True),
        (EgressKind.CONNECT, "connect", 8083, True),
        (EgressKind.KAFKA, "kafka", 9092, True),
        (EgressKind.HTTP, "connect", 8083, False),
        (EgressKind.HTTP, "manage", 9300, False),
        (EgressKind.HTTP, "executor", 9400, False),
        (EgressKind.DATABASE, "observe", 9200, False),
    ],
)
def test_pipes_reach_nothing_of_the_mesh_but_what_their_kind_needs(
    compose: Any, kind: EgressKind, host: str, port: int, allowed: bool
) -> None:
    default = re.fullmatch(r"\$\{\w+:-(.*)\}", compose["x-environment"][VARIABLE])
    assert default is not None
    judge = Egress(tuple(read_allowed(default[1])))
    assert (judge.refusal(kind, host, "172.30.0.7", port) is None) == allowed
