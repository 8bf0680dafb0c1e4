"""Resources that the Helm chart renders, for several sets of values. Nothing runs in a cluster."""

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import jsonschema_rs
import pytest
from pydantic_settings import BaseSettings
from ruamel.yaml import YAML
from tests.support.helm.chart import (
    CHART,
    GATEWAY,
    KEDA,
    PROMETHEUS,
    ROOT,
    Rendered,
    Resource,
    find_helm,
    render,
)

from hifi.control.principals.oidc.settings import OidcSettings
from hifi.control.releases.desired_release import DEPLOYABLE
from hifi.delivery.colours import NAMES
from hifi.kafka.security.settings import KafkaSecuritySettings
from hifi.kafka.topics import ControlTopics, Topics
from hifi.pipe.limits import PipeLimits
from hifi.pipe.vault import VaultSettings
from hifi.runtime.connect_credentials import ConnectSettings
from hifi.runtime.egress import Egress, EgressKind, EgressSettings, read_allowed
from hifi.runtime.http.trusted_hosts import split_hosts
from hifi_cli.commands.acl import principals
from hifi_cli.reference.chart import SERVICES
from hifi_cli.reference.pages import settings_of
from hifi_infra.autoscaler.autoscaler import SERVICES as AUTOSCALED
from hifi_infra.autoscaler.policy import Policy
from hifi_infra.colours.colour_mesh import colour_topics
from hifi_infra.colours.colour_settings import ColourSettings
from hifi_infra.containers import colours_setup
from hifi_infra.containers.colours_setup import ColoursSetupSettings
from hifi_infra.kafka.backlog import reads
from hifi_infra.kafka.setup_job import SetupSettings
from hifi_infra.kubernetes import colour_route
from hifi_infra.kubernetes.colours import KubernetesColoursSettings
from hifi_infra.kubernetes.quantity import quantity
from hifi_normalize.settings import NormalizeSettings
from hifi_observe.alarms.alarm import KINDS
from hifi_state.settings import StateSettings

pytestmark = pytest.mark.timeout(1200)  # the first test may build Helm

VALUES: Final = {file.stem: file for file in sorted(Path(__file__).with_name("values").glob("*.yaml"))} | {
    "try": CHART / "values/try.yaml"
}
SCHEMAS: Final = Path(__file__).with_name("schemas")
NOT_IN_THE_CHART: Final = {
    "cli": "a command, run with `kubectl run`",
    "operator": "the same command",
}
NO_SCHEMA: Final = {"PodMonitor", "PrometheusRule"}
"""Kinds of Prometheus Operator, whose CRDs no Go module has."""


@pytest.fixture(scope="session")
def helm() -> list[str]:
    """The command `helm`."""
    return find_helm()


@pytest.fixture(scope="session")
def renderings(helm: list[str]) -> dict[str, Rendered]:
    """Name of a set of values to what it makes, in a cluster with KEDA, Prometheus Operator and Gateway API."""
    apis = (KEDA, PROMETHEUS, GATEWAY)
    return {name: render(helm, "--values", str(file), apis=apis) for name, file in VALUES.items()}


@pytest.fixture(params=VALUES)
def rendered(request: pytest.FixtureRequest, renderings: dict[str, Rendered]) -> Rendered:
    """The resources of one set of values."""
    return renderings[request.param]


@pytest.fixture(scope="session")
def full_chart(renderings: dict[str, Rendered]) -> Rendered:
    """All parts of the chart."""
    return renderings["everything"]


@pytest.fixture(scope="session")
def compose() -> Any:
    """compose.yaml."""
    return YAML(typ="safe").load(ROOT / "infra/compose.yaml")


@pytest.fixture(scope="session")
def validators() -> dict[str, Any]:
    """`VERSION KIND` to the validator of such resources."""
    kubernetes, other_schemas = (
        json.loads((SCHEMAS / f"{name}.json").read_bytes()) for name in ("kubernetes", "others")
    )
    core_validators = {
        kind: jsonschema_rs.validator_for({"$ref": reference, "definitions": kubernetes["definitions"]})
        for kind, reference in kubernetes["kinds"].items()
    }
    return core_validators | {
        kind: jsonschema_rs.validator_for(schema) for kind, schema in other_schemas["kinds"].items()
    }


def test_each_resource_is_valid_for_the_api_server(rendered: Rendered, validators: dict[str, Any]) -> None:
    for resource in rendered.resources:
        if resource["kind"] in NO_SCHEMA:
            continue
        validator = validators[f"{resource['apiVersion']} {resource['kind']}"]
        problems = [
            f"{list(error.instance_path)}: {error.message[:300]}" for error in validator.iter_errors(resource)
        ]
        assert problems == [], resource["metadata"]["name"]


@pytest.mark.parametrize(
    ("version", "kind", "name", "wrong_fields"),
    [
        ("apps/v1", "Deployment", "egest", [{"replica": 1}, {"replicas": "many"}]),
        (
            KEDA,
            "ScaledObject",
            "egest",
            [{"minReplicas": 1}, {"maxReplicaCount": "many"}, {"triggers": [{"type": "cpu"}]}],
        ),
        (GATEWAY, "HTTPRoute", "ingest", [{"rule": []}, {"rules": [{"backendRefs": [{"weight": 1}]}]}]),
    ],
)
def test_the_schemas_refuse_unknown_keys_wrong_types_and_missing_keys(
    full_chart: Rendered,
    validators: dict[str, Any],
    version: str,
    kind: str,
    name: str,
    wrong_fields: list[dict[str, Any]],
) -> None:
    resource = full_chart.of(kind)[name]
    validator = validators[f"{version} {kind}"]
    assert validator.is_valid(resource)
    for fields in wrong_fields:
        assert not validator.is_valid({**resource, "spec": {**resource["spec"], **fields}}), fields


def test_each_pod_meets_the_restricted_profile(rendered: Rendered) -> None:
    bindings = rendered.of("RoleBinding").values()
    callers = {
        subject["name"].removeprefix("try-hifi-") for binding in bindings for subject in binding["subjects"]
    }
    for name, pod in [*rendered.pods(), *rendered.executor_pods().items()]:
        spec = pod["spec"]
        context = spec["securityContext"]
        assert context["runAsNonRoot"] is True, name
        assert context["runAsUser"] == context["runAsGroup"] == 10001
        assert context["seccompProfile"] == {"type": "RuntimeDefault"}
        sources = [source for volume in spec["volumes"] for source in _sources(volume)]
        tokens = [source for source in sources if "serviceAccountToken" in source]
        assert (spec["automountServiceAccountToken"] or bool(tokens)) is (name in callers), name
        assert not {"hostNetwork", "hostPID", "hostIPC", "initContainers"} & set(spec)
        [container] = spec["containers"]
        security = container["securityContext"]
        assert security["allowPrivilegeEscalation"] is security["privileged"] is False
        assert security["readOnlyRootFilesystem"] is True
        assert security["capabilities"] == {"drop": ["ALL"]}
        assert all("hostPort" not in port for port in container.get("ports", ()))
        kinds = {kind for volume in spec["volumes"] for kind in volume} - {"name"}
        assert kinds <= {"configMap", "emptyDir", "projected", "secret", "persistentVolumeClaim"}, name
        assert all("sizeLimit" in volume["emptyDir"] for volume in spec["volumes"] if "emptyDir" in volume)
        volumes = [volume["name"] for volume in spec["volumes"]]
        claimed_volumes = ["data"] if name == "kafka" and "data" not in volumes else []
        mounts = container["volumeMounts"]
        assert sorted(mount["name"] for mount in mounts) == sorted(volumes + claimed_volumes)
        paths = [mount["mountPath"] for mount in mounts]
        assert len(set(paths)) == len(paths)
        for folder in ("/tmp", *(["/dev/shm"] if name in {"enrich", "lake", "manage", "state"} else [])):
            assert folder in paths, name


def test_each_container_has_limits_and_an_image_with_a_tag(rendered: Rendered, compose: Any) -> None:
    images = {service["image"].partition(":")[0] for service in compose["services"].values()}
    for name, pod in rendered.pods():
        [container] = pod["spec"]["containers"]
        assert container["resources"]["limits"].keys() == {"cpu", "memory"}, name
        assert container["resources"]["requests"].keys() == {"cpu", "memory"}, name
        repository, tag = container["image"].rsplit(":", 1)
        assert repository.rsplit("/", 1)[-1] in images
        assert tag not in {"", "latest"}


def test_each_service_has_an_account_probes_a_budget_spread_and_a_policy(
    rendered: Rendered, request: pytest.FixtureRequest
) -> None:
    accounts, budgets, policies = map(rendered.of, ("ServiceAccount", "PodDisruptionBudget", "NetworkPolicy"))
    for kind in ("Deployment", "StatefulSet"):
        for name, workload in rendered.of(kind).items():
            pod = workload["spec"]["template"]
            labels = pod["metadata"]["labels"]
            spec = pod["spec"]
            assert spec["serviceAccountName"] == f"try-hifi-{name}"
            assert accounts[name]["automountServiceAccountToken"] is False
            [container] = spec["containers"]
            ports = {port["name"] for port in container["ports"]}
            for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
                action = container[probe].get("httpGet") or container[probe].get("tcpSocket")
                assert action["port"] in ports if action else container[probe]["exec"]["command"], name
            spread = spec["topologySpreadConstraints"]
            assert {constraint["topologyKey"] for constraint in spread} == {
                "kubernetes.io/hostname",
                "topology.kubernetes.io/zone",
            }
            selectors = [
                workload["spec"]["selector"],
                budgets[name]["spec"]["selector"],
                *(constraint["labelSelector"] for constraint in spread),
            ]
            if "mutual-tls" not in request.node.callspec.params["rendered"]:
                selectors.append(policies[name]["spec"]["podSelector"])
                assert policies[name]["spec"]["policyTypes"] == ["Ingress", "Egress"]
            for selector in selectors:
                assert selector["matchLabels"].items() <= labels.items(), name
                assert selector["matchLabels"]["app.kubernetes.io/component"] == name


def test_each_resource_has_the_usual_labels_and_a_namespace(rendered: Rendered) -> None:
    for resource in rendered.resources:
        labels = resource["metadata"]["labels"]
        assert labels["app.kubernetes.io/name"] == "hifi"
        assert labels["app.kubernetes.io/instance"] == "try"
        assert labels["app.kubernetes.io/managed-by"] == "Helm"
        assert resource["metadata"]["namespace"] == "shop"
    names = [(resource["kind"], resource["metadata"]["name"]) for resource in rendered.resources]
    assert len(set(names)) == len(names)


def test_no_secret_is_rendered_and_no_role_but_those_of_the_executor_colours_and_drivers(
    rendered: Rendered, request: pytest.FixtureRequest
) -> None:
    kinds = {resource["kind"] for resource in rendered.resources}
    assert not kinds & {"Secret", "ClusterRole", "ClusterRoleBinding"}
    if request.node.callspec.params["rendered"] not in {"executor", "colours", "spark"}:
        assert not kinds & {"Role", "RoleBinding"}


def test_the_executor_may_change_what_it_scales_or_deploys_and_no_others(
    renderings: Mapping[str, Rendered],
) -> None:
    chart = renderings["executor"]
    deployments = chart.of("Deployment")
    scaled = {name for name, deployment in deployments.items() if "replicas" not in deployment["spec"]}
    assert scaled == set(AUTOSCALED)
    *reads_only, change = chart.of("Role")["executor"]["rules"]
    assert all(rule["verbs"] == ["list"] for rule in reads_only)
    assert change["verbs"] == ["patch"]
    assert {name.removeprefix("try-hifi-") for name in change["resourceNames"]} == scaled | set(DEPLOYABLE)
    assert chart.variables("scale")["HIFI_SCALE_BOUNDS"] == "egest=2-4,normalize=2-4,retrier=1-4"
    assert chart.of("HorizontalPodAutoscaler") == {}


def test_drivers_of_spark_make_pods_in_which_functions_reach_no_token_and_no_secret(
    renderings: Mapping[str, Rendered],
) -> None:
    chart = renderings["spark"]
    pods = chart.executor_pods()
    assert set(pods) == {"enrich-spark", "lake-spark"} == set(chart.of("Role"))
    for name, pod in pods.items():
        service = name.removesuffix("-spark")
        [rule] = chart.of("Role")[name]["rules"]
        assert rule["resources"] == ["pods"]
        [subject] = chart.of("RoleBinding")[name]["subjects"]
        assert subject["name"] == f"try-hifi-{service}"
        conf = json.loads(chart.variables(service)[f"HIFI_{service.upper()}_CONF"])
        credentials = {
            conf[f"spark.kubernetes.authenticate.{file}"] for file in ("oauthTokenFile", "caCertFile")
        }
        assert credentials <= _files(dict(chart.pods())[service])
        account = conf["spark.kubernetes.authenticate.executor.serviceAccountName"]
        assert chart.of("ServiceAccount")[account.removeprefix("try-hifi-")]
        assert not any("secret" in volume or "projected" in volume for volume in pod["spec"]["volumes"])
        driver = dict(chart.pods())[service]["spec"]
        [container] = driver["containers"]
        [mount] = (mount for mount in container["volumeMounts"] if mount["name"] == "spark")
        assert conf["spark.kubernetes.executor.podTemplateFile"] == f"{mount['mountPath']}/executor.yaml"
        ports = {port["name"]: str(port["containerPort"]) for port in container["ports"]}
        assert conf["spark.driver.port"] == ports["driver"]
        assert conf["spark.blockManager.port"] == ports["blocks"]
        assert conf["spark.kubernetes.container.image"] == container["image"]
        assert [entry["name"] for entry in container["env"][:2]] == ["POD_NAME", "POD_IP"]
        assert conf["spark.kubernetes.driver.pod.name"] == "$(POD_NAME)"
        assert conf["spark.driver.host"] == "$(POD_IP)"
        policies = chart.of("NetworkPolicy")
        assert _peers(policies[service], "driver") == {name}
        assert _peers(policies[name], 7079) == {service, name}
    egress = [
        peer for rule in chart.of("NetworkPolicy")["lake-spark"]["spec"]["egress"] for peer in rule["to"]
    ]
    assert not any("ipBlock" in peer for peer in egress), "only the pod of lake writes to buckets"
    conf = json.loads(chart.variables("enrich")["HIFI_ENRICH_CONF"])
    assert (conf["spark.executor.memoryOverhead"], conf["spark.executor.instances"]) == ("1g", "3")
    [volume] = (volume for volume in pods["lake-spark"]["spec"]["volumes"] if volume["name"] == "volume-0")
    assert volume["persistentVolumeClaim"]["claimName"] == "lake"


def test_deploy_and_scale_reach_the_executor_and_the_health_pages_that_they_read(
    renderings: Mapping[str, Rendered],
) -> None:
    policies = renderings["executor"].of("NetworkPolicy")
    assert _peers(policies["executor"], "actors") == {"scale", "deploy"}
    for name, policy in policies.items():
        readers = {"deploy"} if name in DEPLOYABLE else set()
        readers |= {"scale"} if name == "egest" else set()
        assert _peers(policy, "health") == readers, name
        for actor in ("scale", "deploy"):
            ports = {
                rule["ports"][0]["port"]
                for rule in policies[actor]["spec"]["egress"]
                for peer in rule.get("to", ())
                if _component(peer) == name
            }
            assert ports == ({9400} if name == "executor" else {9000} if actor in readers else set()), name


def _component(peer: Resource) -> str:
    labels = peer.get("podSelector", {}).get("matchLabels", {})
    return str(labels.get("app.kubernetes.io/component", ""))


def _peers(policy: Resource, port: str | int) -> set[str]:
    """Components that may connect to a port."""
    return {
        _component(peer)
        for rule in policy["spec"]["ingress"]
        if rule["ports"][0]["port"] == port
        for peer in rule["from"]
    }


def test_colours_may_read_deployments_and_change_its_route_and_nothing_else(
    renderings: Mapping[str, Rendered],
) -> None:
    chart = renderings["colours"]
    assert chart.of("Role")["colours"]["rules"] == [
        {"apiGroups": ["apps"], "resources": ["deployments"], "verbs": ["list"]},
        {
            "apiGroups": ["gateway.networking.k8s.io"],
            "resources": ["httproutes"],
            "verbs": ["get", "patch"],
            "resourceNames": [chart.of("HTTPRoute")["ingest"]["metadata"]["name"]],
        },
    ]
    assert [subject["name"] for subject in chart.of("RoleBinding")["colours"]["subjects"]] == [
        "try-hifi-colours"
    ]
    policy = chart.of("NetworkPolicy")["colours"]["spec"]
    assert policy["ingress"] == []
    ports = {port["port"] for rule in policy["egress"] for port in rule["ports"]}
    assert ports == {53, 9093, 9094, 9095, 443, 6443}


def test_colours_knows_the_route_and_both_releases(
    renderings: Mapping[str, Rendered], monkeypatch: pytest.MonkeyPatch
) -> None:
    chart = renderings["colours"]
    for variable, value in chart.variables("colours").items():
        monkeypatch.setenv(variable, value)
    settings = KubernetesColoursSettings()
    route = chart.of("HTTPRoute")["ingest"]
    assert settings.colours_route == route["metadata"]["name"]
    assert settings.of_colour("blue") == ("try", "try-hifi", "blue-kafka:9093")
    assert settings.of_colour("green") == ("green", "green-hifi", "green-kafka:9095")
    assert settings.kafka == "control-kafka:9094"
    assert ColourSettings().colours_api.endswith(f":{settings.colours_port}")
    record = chart.variables("observe")["HIFI_COLOURS"]
    assert ControlTopics(record).colours == ControlTopics(f"{settings.stream}-control").colours
    assert chart.variables("observe")["HIFI_CONTROL"] == colour_topics(settings.stream, "blue").control
    backends = {name: f"{settings.of_colour(name)[1]}-ingest" for name in NAMES}
    described = {
        **route,
        "metadata": {**route["metadata"], "resourceVersion": "1", "generation": 1},
    }
    assert colour_route.read(described, backends).shares == {"blue": 10_000, "green": 0}


def test_the_publisher_sets_up_what_both_colours_share(
    renderings: Mapping[str, Rendered], monkeypatch: pytest.MonkeyPatch
) -> None:
    chart = renderings["colours"]
    for variable, value in chart.variables("colours-setup").items():
        monkeypatch.setenv(variable, value)
    settings, security = ColoursSetupSettings(), KafkaSecuritySettings()
    assert (settings.kafka, settings.stream) == ("control-kafka:9094", "hifi")
    assert security.user == chart.variables("setup")["HIFI_KAFKA_SECURITY_USER"] == "hifi.publisher"
    assert settings.control_token_file == Path("/run/administrator/token")
    assert settings.create_topics is False
    [container] = dict(chart.pods())["colours-setup"]["spec"]["containers"]
    assert container["args"] == [colours_setup.__name__]


def test_without_gateway_api_there_is_no_colours_and_the_chart_says_so(helm: list[str]) -> None:
    chart = render(helm, "--values", str(VALUES["colours"]))
    kinds = {(resource["kind"], resource["metadata"]["name"]) for resource in chart.resources}
    assert not any("-colours" in name or kind == "HTTPRoute" for kind, name in kinds)


def test_an_upgrade_ends_what_the_executor_has_begun(rendered: Rendered) -> None:
    for name, deployment in rendered.of("Deployment").items():
        if name not in {"executor", "colours", "destination"}:
            fields = ("minReadySeconds", "progressDeadlineSeconds")
            assert [deployment["spec"][field] for field in fields] == [0, 600], name


def test_the_executor_knows_which_release_is_installed(renderings: Mapping[str, Rendered]) -> None:
    chart = renderings["executor"]
    [egest] = chart.of("Deployment")["egest"]["spec"]["template"]["spec"]["containers"]
    assert egest["image"].rpartition(":")[2] == chart.variables("executor")["HIFI_EXECUTOR_INSTALLED"]


def test_the_chart_has_the_services_of_compose(
    full_chart: Rendered, renderings: Mapping[str, Rendered], compose: Any
) -> None:
    components = {name for name, _ in full_chart.pods()} - {"test"}
    components |= {name for name, _ in renderings["executor"].pods()} - {"test"}
    assert components == set(compose["services"]) - set(NOT_IN_THE_CHART)
    declared = YAML(typ="safe").load((CHART / "values.yaml").read_text())["services"]
    assert set(declared) == components - {"kafka", "setup", "destination", "executor"}


@pytest.mark.parametrize("name_of_values", ["everything", "executor"])
def test_memory_and_drains_are_those_of_compose(
    renderings: Mapping[str, Rendered], compose: Any, name_of_values: str
) -> None:
    chart = renderings[name_of_values]
    for name, deployment in chart.of("Deployment").items():
        service = compose["services"][name]
        spec = deployment["spec"]["template"]["spec"]
        [container] = spec["containers"]
        if name != "destination":
            memory = service["deploy"]["resources"]["limits"]["memory"]
            default = re.sub(r"\$\{\w+:-(.*)\}", r"\1", memory)
            assert container["resources"]["limits"]["memory"] == default[:-1] + default[-1].upper() + "i"
            serves = 5 if "lifecycle" in container else 0
            assert spec["terminationGracePeriodSeconds"] == int(service["stop_grace_period"][:-1]) + serves, (
                name
            )
            if name not in {"connect", "executor"}:
                drain = chart.variables(name)["HIFI_DRAIN_S"]
                assert float(drain) == settings_of(name).model_fields["drain_s"].default


def test_normalize_has_memory_for_itself_and_for_a_function_that_uses_all_that_it_may(
    full_chart: Rendered,
) -> None:
    [container] = full_chart.of("Deployment")["normalize"]["spec"]["template"]["spec"]["containers"]
    variables = full_chart.variables("normalize")

    def default(name: str) -> int:
        text = variables.get(f"HIFI_{name.upper()}")
        return int(text or NormalizeSettings.model_fields[name].default)

    at_start_bytes = (
        96 + 64
    ) * 2**20  # of normalize and of the function's worker, as measured, and a third more
    kept_bytes = default("normalize_buffer_bytes") + 150 * default("normalize_max_fingerprints")
    function_bytes = default("normalize_function_memory_mb") * 2**20
    limit_bytes = quantity(container["resources"]["limits"]["memory"])
    assert at_start_bytes + kept_bytes + function_bytes <= limit_bytes


def _settings(name: str) -> set[str]:
    """The variables that a component reads."""
    if name == "connect":
        source = (ROOT / "infra/docker/connect/start.py").read_text()
        return set(re.findall(r"\b(?:HIFI_[A-Z_]+[A-Z]|CONNECT_HEAP_MB)\b", source)) | {
            f"HIFI_KAFKA_SECURITY_{key}"
            for key in ("PROTOCOL", "CA_FILE", "USER", "PASSWORD_FILE", "MECHANISM")
        }
    models: list[type[BaseSettings]] = [KafkaSecuritySettings, PipeLimits, VaultSettings, EgressSettings]
    models.append(SetupSettings if name == "setup" else settings_of(name))
    models += [OidcSettings] if name in {"observe", "manage"} else []
    models += [ConnectSettings] if name == "collect" else []
    return {
        f"{model.model_config['env_prefix']}{field.upper()}"
        for model in models
        for field in model.model_fields
    }


def test_each_variable_is_a_setting_of_its_service_with_a_value_that_it_takes(
    rendered: Rendered, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, _ in rendered.pods():
        if name in {"kafka", "destination", "test", "executor", "colours", "colours-setup"}:
            continue
        variables = rendered.variables(name)
        names = {variable for variable in variables if not variable.startswith("PIPE_")}
        assert names <= _settings(name), name
        assert variables["HIFI_KAFKA"]
        with monkeypatch.context() as patch:
            for variable, value in variables.items():
                patch.setenv(variable, value)
            if name != "connect":
                model: type[BaseSettings] = SetupSettings if name == "setup" else settings_of(name)
                settings: Any = model()
                assert settings.stream == variables["HIFI_STREAM"]
                EgressSettings()
            KafkaSecuritySettings()


def test_settings_of_all_services_take_precedence_over_the_defaults_of_the_chart(helm: list[str]) -> None:
    conf = r'{"spark.task.cpus": "2"}'
    options = [
        *("--set", "kafka.bootstrapServers=kafka:9092", "--set", "services.enrich.executors.instances=2"),
        *(
            "--set",
            "settings.HIFI_ENRICH_DRIVER_MEMORY=4g",
            "--set-literal",
            f"settings.HIFI_ENRICH_CONF={conf}",
        ),
    ]
    variables = render(helm, *options).variables("enrich")
    assert variables["HIFI_ENRICH_DRIVER_MEMORY"] == "4g"
    rendered_conf = json.loads(variables["HIFI_ENRICH_CONF"])
    assert (rendered_conf["spark.task.cpus"], rendered_conf["spark.executor.instances"]) == ("2", "2")
    assert render(helm, *options[:2]).variables("enrich")["HIFI_ENRICH_DRIVER_MEMORY"] == "768m"


def test_programs_of_other_namespaces_read_views_by_the_names_of_the_service(full_chart: Rendered) -> None:
    chart_names = {"try-hifi-view.shop", "try-hifi-view.shop.svc", "try-hifi-view.shop.svc.cluster.local"}
    assert set(split_hosts(full_chart.variables("view")["HIFI_VIEW_HOSTS"])) == chart_names


def test_the_windows_of_a_step_fit_on_the_volume_of_state(full_chart: Rendered) -> None:
    state = dict(full_chart.pods())["state"]["spec"]
    [size] = [volume["emptyDir"]["sizeLimit"] for volume in state["volumes"] if volume["name"] == "tmp"]
    assert quantity(size) >= 1.5 * StateSettings.model_fields["state_max_file_bytes"].default


def test_without_scale_the_services_have_the_instances_that_the_values_name(helm: list[str]) -> None:
    values = VALUES["executor"]
    options = ("--set", "services.scale.enabled=false", "--set", "services.egest.replicas=3")
    deployments = render(helm, "-f", str(values), *options).of("Deployment")
    replicas = {
        name: deployments[name]["spec"]["replicas"] for name in ("ingest", "normalize", "egest", "retrier")
    }
    assert replicas == {"ingest": 2, "normalize": 2, "egest": 3, "retrier": 1}


def test_numbers_are_written_in_full(renderings: Mapping[str, Rendered]) -> None:
    external = renderings["external"]
    assert external.variables("egest")["HIFI_EGEST_PARK_BYTES"] == "67108864"
    assert external.variables("ingest")["HIFI_INGEST_MAX_BODY_BYTES"] == "16777216"
    assert "HIFI_INGEST_MAX_BODY_BYTES" not in external.variables("egest")


def test_the_limits_on_pipes_are_those_of_compose(rendered: Rendered, compose: Any) -> None:
    environment = compose["x-environment"]
    for name in ("ingest", "normalize", "egest", "enrich"):
        variables = rendered.variables(name)
        for variable, value in environment.items():
            if variable.startswith("HIFI_PIPES_") and variable != "HIFI_PIPES_SECRET_GRANTS":
                assert variables[variable] == re.sub(r"\$\{\w+:-(.*)\}", r"\1", str(value))


@pytest.mark.parametrize(
    ("kind", "host", "port", "allowed"),
    [
        (EgressKind.HTTP, "try-hifi-destination", 9100, True),
        (EgressKind.CONNECT, "try-hifi-connect", 8083, True),
        (EgressKind.KAFKA, "try-hifi-kafka", 9092, True),
        (EgressKind.KAFKA, "try-hifi-kafka.shop.svc", 9092, True),
        (EgressKind.HTTP, "try-hifi-connect", 8083, False),
        (EgressKind.HTTP, "try-hifi-manage", 9300, False),
        (EgressKind.DATABASE, "try-hifi-observe", 9200, False),
    ],
)
def test_pipes_reach_nothing_of_the_mesh_but_what_their_kind_needs(
    full_chart: Rendered, kind: EgressKind, host: str, port: int, allowed: bool
) -> None:
    judge = Egress(tuple(read_allowed(full_chart.variables("egest")["HIFI_EGRESS_ALLOW"])))
    assert (judge.refusal(kind, host, "10.96.0.7", port) is None) == allowed


def _sources(volume: Resource) -> Sequence[Resource]:
    """What a volume is made of; one that is not projected has one source, itself."""
    return [*volume.get("projected", {}).get("sources", ()), volume]


def _files(pod: Resource) -> set[str]:
    """The files of volumes that name them, with the path at which they are mounted."""
    [container] = pod["spec"]["containers"]
    mounts = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
    files = set()
    for volume in pod["spec"]["volumes"]:
        for source in _sources(volume):
            entries = [source["serviceAccountToken"]] if "serviceAccountToken" in source else []
            entries += [
                entry for kind in ("secret", "configMap") for entry in source.get(kind, {}).get("items", ())
            ]
            files |= {f"{mounts[volume['name']]}/{entry['path']}" for entry in entries}
    return files


def test_each_file_that_a_variable_names_is_mounted(rendered: Rendered) -> None:
    for name, pod in rendered.pods():
        files = _files(pod)
        for variable, value in rendered.variables(name).items():
            if variable.endswith("_FILE"):
                assert value in files, (name, variable)


def test_no_volume_is_mounted_within_another_one(rendered: Rendered) -> None:
    """Within a read-only volume the mount point cannot be made, and the container does not start."""
    for name, pod in rendered.pods():
        [container] = pod["spec"]["containers"]
        mounts = {Path(mount["mountPath"]) for mount in container["volumeMounts"]}
        folders = list(mounts)
        if pod["spec"]["automountServiceAccountToken"]:
            # In the images /var/run is a link to /run.
            folders.append(Path("/run/secrets/kubernetes.io/serviceaccount"))
        for folder in folders:
            assert not mounts & set(folder.parents), (name, folder)


def test_users_and_secrets_of_strimzi(renderings: Mapping[str, Rendered]) -> None:
    strimzi = renderings["strimzi"]
    variables = strimzi.variables("egest")
    assert variables["HIFI_KAFKA"] == "events-kafka-bootstrap.kafka.svc:9093"
    assert variables["HIFI_KAFKA_SECURITY_PROTOCOL"] == "SASL_SSL"
    assert variables["HIFI_KAFKA_SECURITY_USER"] == "shop.egest"
    assert strimzi.variables("setup")["HIFI_KAFKA_SECURITY_USER"] == "shop.publisher"
    pods = dict(strimzi.pods())
    [kafka] = (volume for volume in pods["egest"]["spec"]["volumes"] if volume["name"] == "kafka")
    assert kafka["projected"]["sources"] == [
        {"secret": {"name": "events-cluster-ca-cert", "items": [{"key": "ca.crt", "path": "ca.pem"}]}},
        {"secret": {"name": "shop.egest", "items": [{"key": "password", "path": "password"}]}},
    ]
    tls = renderings["mutual-tls"]
    assert tls.variables("egest")["HIFI_KAFKA_SECURITY_PROTOCOL"] == "SSL"
    assert tls.variables("egest")["HIFI_KAFKA_SECURITY_KEY_FILE"] == "/run/kafka/key.pem"
    assert "HIFI_KAFKA_SECURITY_USER" not in tls.variables("egest")


def test_each_user_of_kafka_is_one_that_hifi_acl_show_lists(helm: list[str]) -> None:
    """A pod waits for the Secret of another user for ever."""
    connect = "services.connect.enabled=true,connect.credentialsSecret=connect"
    rendered = render(helm, "--values", str(VALUES["colours"]), "--set", connect, apis=(GATEWAY,))
    users = {rendered.variables(name).get("HIFI_KAFKA_SECURITY_USER") for name, _ in rendered.pods()}
    listed = principals(Topics("hifi"), "User:{stream}.{service}", [ControlTopics("hifi-blue")])
    assert {"hifi.colours", "hifi.connect", "hifi.egest"} <= users
    assert users <= {principal.removeprefix("User:") for principal in listed}


def test_the_rules_of_scaling_are_those_of_the_autoscaler(
    full_chart: Rendered, renderings: Mapping[str, Rendered]
) -> None:
    policy = Policy()
    autoscalers = renderings["external"].of("HorizontalPodAutoscaler")
    assert set(autoscalers) == {"ingest", *AUTOSCALED}
    for name, autoscaler in autoscalers.items():
        [metric] = autoscaler["spec"]["metrics"]
        cores = metric["resource"]["target"]["averageValue"]
        assert metric["resource"]["name"] == "cpu"
        assert cores == f"{policy.cpu_high * 1000:.0f}m"
        behavior = autoscaler["spec"]["behavior"]
        assert behavior["scaleUp"]["stabilizationWindowSeconds"] == policy.up_after_s
        assert behavior["scaleDown"]["stabilizationWindowSeconds"] == policy.down_after_s
        assert behavior["scaleDown"]["policies"] == [
            {"type": "Pods", "value": 1, "periodSeconds": policy.down_after_s}
        ]
        assert "replicas" not in renderings["external"].of("Deployment")[name]["spec"]
        is_replaced = name in full_chart.of(
            "ScaledObject"
        )  # KEDA's webhook refuses a second scaler without it
        unchecked = autoscaler["metadata"].get("annotations", {}).get("validations.keda.sh/hpa-ownership")
        assert unchecked == ("false" if is_replaced else None), name
    topics = Topics("hifi")
    objects = full_chart.of("ScaledObject")
    assert set(objects) == {"normalize", "egest"}
    assert set(full_chart.of("HorizontalPodAutoscaler")) == {"ingest", "retrier"}
    for name, scaled in objects.items():
        cpu, *lags = scaled["spec"]["triggers"]
        assert cpu["type"] == "cpu"
        assert cpu["metadata"] == {"value": "700m"}
        assert [lag["metadata"]["topic"] for lag in lags] == list(reads(topics, name))
        for lag in lags:
            assert lag["metadata"]["consumerGroup"] == topics.group(name)
            assert lag["metadata"]["lagThreshold"] == str(policy.backlog_high)
            assert lag["authenticationRef"] == {"name": "keda-kafka"}
        assert scaled["spec"]["fallback"]["behavior"] == "currentReplicas"


def test_keda_reaches_the_bundled_broker_from_its_own_namespace(helm: list[str]) -> None:
    options = ("--set", "kafka.bundled.enabled=true", "--set", "autoscaling.keda.enabled=true")
    chart = render(helm, *options, "--set", "autoscaling.keda.namespace=scalers", apis=["keda.sh/v1alpha1"])
    lags = [
        trigger["metadata"]
        for scaled in chart.of("ScaledObject").values()
        for trigger in scaled["spec"]["triggers"]
        if trigger["type"] == "kafka"
    ]
    assert {lag["bootstrapServers"] for lag in lags} == {"try-hifi-kafka.shop.svc:9092"}
    peers = [peer for rule in chart.of("NetworkPolicy")["kafka"]["spec"]["ingress"] for peer in rule["from"]]
    assert {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "scalers"}}} in peers


def test_only_services_that_connect_for_pipes_or_people_reach_outside(full_chart: Rendered) -> None:
    outside_services = {
        name
        for name, policy in full_chart.of("NetworkPolicy").items()
        if any("ipBlock" in peer for rule in policy["spec"]["egress"] for peer in rule.get("to", ()))
    }
    assert outside_services == {"collect", "enrich", "egest", "lake", "observe", "manage", "connect"}
    for name, policy in full_chart.of("NetworkPolicy").items():
        for rule in policy["spec"]["egress"]:
            assert rule.get("to"), name  # nobody may reach everything
            for peer in rule["to"]:
                if peer.get("ipBlock", {}).get("cidr") == "0.0.0.0/0":
                    assert {"10.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12"} <= set(peer["ipBlock"]["except"])


def test_who_may_connect_to_each_part(full_chart: Rendered, renderings: Mapping[str, Rendered]) -> None:
    component = "app.kubernetes.io/component"

    def peers(rules: Sequence[Resource]) -> dict[int | str, set[str]]:
        return {
            rule["ports"][0]["port"]: {
                peer.get("podSelector", {}).get("matchLabels", {}).get(component, "all")
                for peer in rule.get("from", [{}])
            }
            for rule in rules
        }

    policies = full_chart.of("NetworkPolicy")
    assert peers(policies["ingest"]["spec"]["ingress"]) == {"events": {"all"}}
    # Workers of one group pass requests on to their leader.
    assert peers(policies["connect"]["spec"]["ingress"]) == {"rest": {"collect", "connect"}}
    for name in ("collect", "connect"):
        egress = [rule for rule in policies[name]["spec"]["egress"] if "ports" in rule]
        assert peers([{**rule, "from": rule["to"]} for rule in egress])[8083] == {"connect"}
    assert peers(policies["destination"]["spec"]["ingress"]) == {"events": {"egest"}}
    assert policies["retrier"]["spec"]["ingress"] == []
    assert peers(renderings["external"].of("NetworkPolicy")["retrier"]["spec"]["ingress"]) == {
        "health": {"all"}
    }
    for name, service in full_chart.of("Service").items():
        workloads = full_chart.of("Deployment") | full_chart.of("StatefulSet")
        [container] = workloads[name]["spec"]["template"]["spec"]["containers"]
        ports = {port["name"]: port["containerPort"] for port in container["ports"]}
        for port in service["spec"]["ports"]:
            assert ports[port["targetPort"]] == port["port"]


def test_each_kafka_that_a_variable_names_is_one_that_the_pod_may_reach(rendered: Rendered) -> None:
    pods = dict(rendered.pods())
    for name, policy in rendered.of("NetworkPolicy").items():
        variables = rendered.variables(name) if name in pods else {}
        servers = {
            server
            for variable, value in variables.items()
            if re.fullmatch("HIFI_(.+_)?KAFKA", variable)
            for server in value.split(",")
        }
        for server in servers:
            host, _, port = server.partition(":")
            allowed_components = {
                _component(peer)
                for rule in policy["spec"]["egress"]
                if int(port) in {entry["port"] for entry in rule.get("ports", ())}
                for peer in rule.get("to", [{}])
            }
            expected_component = "kafka" if host == "try-hifi-kafka.shop.svc" else ""
            assert expected_component in allowed_components, (name, server)


def test_each_colour_may_use_the_bundled_kafka_of_the_other_one(
    full_chart: Rendered, renderings: Mapping[str, Rendered]
) -> None:
    instance = "app.kubernetes.io/instance"
    for chart, is_shared in ((renderings["green"], True), (full_chart, False)):
        rule = chart.of("NetworkPolicy")["kafka"]["spec"]["ingress"][0]
        [labels] = [peer["podSelector"]["matchLabels"] for peer in rule["from"]]
        assert labels["app.kubernetes.io/name"] == "hifi"
        assert (instance not in labels) is is_shared


def test_helm_test_reaches_ingest_and_observe_whoever_else_may(helm: list[str]) -> None:
    peer = "[0].podSelector.matchLabels.app=front"
    options = ("--set", f"networkPolicy.senders{peer}", "--set", f"networkPolicy.consoles{peer}")
    for values, testers in (("everything", {"test"}), ("strimzi", set())):
        policies = render(helm, "--values", str(VALUES[values]), *options).of("NetworkPolicy")
        for name, port in (("ingest", "events"), ("observe", "console")):
            assert _peers(policies[name], port) - {""} == testers
        assert _peers(policies["manage"], "console") - {""} == set()


def test_ports_are_those_of_the_images(full_chart: Rendered, compose: Any) -> None:
    dockerfile = (ROOT / "infra/docker/service.Dockerfile").read_text()
    for name, variable in {"ingest": "INGEST", "observe": "OBSERVE", "manage": "MANAGE"}.items():
        [served_port] = re.findall(rf"HIFI_{variable}_PORT=(\d+)", dockerfile)
        [port] = full_chart.of("Service")[name]["spec"]["ports"]
        assert port["port"] == int(served_port)
    for name in set(SERVICES) - {"scale", "deploy"}:
        [container] = full_chart.of("Deployment")[name]["spec"]["template"]["spec"]["containers"]
        assert {"name": "health", "containerPort": 9000} in container["ports"]


def test_the_route_shares_requests_between_colours(
    renderings: Mapping[str, Rendered], full_chart: Rendered
) -> None:
    [rule] = renderings["blue"].of("HTTPRoute")["ingest"]["spec"]["rules"]
    assert rule["backendRefs"] == [
        {"name": "blue-hifi-ingest", "port": 8080, "weight": 90},
        {"name": "green-hifi-ingest", "port": 8080, "weight": 10},
    ]
    assert renderings["blue"].variables("setup")["HIFI_COLOUR"] == "blue"
    [rule] = full_chart.of("HTTPRoute")["ingest"]["spec"]["rules"]
    assert [backend["name"] for backend in rule["backendRefs"]] == ["try-hifi-ingest"]


def test_monitoring_has_each_alarm_and_the_dashboard(full_chart: Rendered) -> None:
    [group] = full_chart.of("PrometheusRule")["alarms"]["spec"]["groups"]
    absent_alarm, still_alarm, *alarms = group["rules"]
    assert (absent_alarm["alert"], still_alarm["alert"]) == ("HifiObserveAbsent", "HifiViewStandsStill")
    assert "hifi_view_stands_still{" in still_alarm["expr"]
    assert [re.findall(r'kind="([^"]+)"', alarm["expr"]) for alarm in alarms] == [[kind] for kind in KINDS]
    assert [alarm["annotations"]["runbook_url"] for alarm in alarms] == [
        f"https://docs.example/runbooks#{kind}" for kind in KINDS
    ]
    dashboard = full_chart.of("ConfigMap")["dashboard"]["data"]["hifi.json"]
    assert json.loads(dashboard) == json.loads((ROOT / "docs/grafana/hifi.json").read_text())
    [endpoint] = full_chart.of("PodMonitor")["metrics"]["spec"]["podMetricsEndpoints"]
    assert (endpoint["port"], endpoint["path"]) == ("health", "/metrics")


def test_setup_gets_another_name_when_its_pipes_change(
    helm: list[str], renderings: Mapping[str, Rendered]
) -> None:
    values = ("--values", str(VALUES["external"]))
    [job_before] = renderings["external"].of("Job")
    [same_job] = render(helm, *values).of("Job")
    [job_after] = render(helm, *values, "--set-string", "pipes.revision=8").of("Job")
    assert job_before == same_job != job_after


def test_a_cluster_without_other_projects_gets_a_chart_that_works_without_them(helm: list[str]) -> None:
    plain_chart = render(helm, "--values", str(VALUES["everything"]))
    kinds = {resource["kind"] for resource in plain_chart.resources}
    assert not kinds & {"ScaledObject", "PodMonitor", "PrometheusRule", "HTTPRoute"}
    assert set(plain_chart.of("HorizontalPodAutoscaler")) == {"ingest", *AUTOSCALED}


def test_the_version_is_that_of_the_packages() -> None:
    chart = YAML(typ="safe").load((CHART / "Chart.yaml").read_text())
    version = re.search(r'^version = "(.+)"', (ROOT / "libs/pyproject.toml").read_text(), re.MULTILINE)
    assert version is not None
    assert chart["appVersion"] == version[1]
    assert chart["version"] == re.sub(r"(?<=\d)rc", "-rc", version[1])
