"""Wrong values of the Helm chart are refused with what to change."""

import subprocess
from typing import Final

import pytest
from tests.support.helm.chart import CHART, HelmRefused, find_helm, render

pytestmark = pytest.mark.timeout(1200)  # the first test may build Helm

BASE: Final = ("--set", "kafka.bootstrapServers=kafka:9092")
ROUTE: Final = ("route.enabled=true", "route.parents[0].name=gateway")
RECORD: Final = (
    "colour.name=blue",
    "colour.record=hifi-control",
    "control.enabled=true",
    "control.name=hifi-blue",
)
COLOURS: Final = (
    "colours.enabled=true",
    "colours.url=https://events.example",
    "colours.blue.kafka=blue-kafka:9092",
    "colours.green.kafka=green-kafka:9092",
)

LAKE_EXECUTORS: Final = ("services.lake.enabled=true", "services.lake.executors.instances=2")


@pytest.fixture(scope="module")
def helm() -> list[str]:
    """The command `helm`."""
    return find_helm()


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (["kafka.bootstrapServers="], "set one of kafka.bootstrapServers, kafka.strimzi.cluster and"),
        (["kafka.bundled.enabled=true"], "set are: kafka.bundled.enabled, kafka.bootstrapServers"),
        (["service.egest.replicas=2"], "'service' not allowed"),
        (["services.egest.replica=2"], "'replica' not allowed"),
        (["services.enrich.max=2"], "'max' not allowed"),
        (["services.egests.replicas=2"], "'egests' not allowed"),
        (["kafka.bootstrapServers=kafka"], "kafka/bootstrapServers"),
        (["kafka.security.protocol=TLS"], "kafka/security/protocol"),
        (["image.tag=latest"], "image.tag is latest, which may be other code in each pod"),
        (["stream.name=Shop"], "stream/name"),
        (["stream.partitions=0"], "stream/partitions"),
        (["services.egest.resources.limits=null"], "missing property 'limits'"),
        (["services.egest.max=9"], "services.egest: 9 instances are more than stream.partitions (4)"),
        (["autoscaling.enabled=false", "services.normalize.replicas=9"], "lower services.normalize.replicas"),
        (["services.ingest.min=5"], "services.ingest.min (5) is above services.ingest.max (4)"),
        (["control.enabled=true", "services.rollout.replicas=2"], "services.rollout.replicas is 2: run one instance"),
        (["control.executor.enabled=true"], "control.executor.enabled needs control.enabled"),
        (["control.enabled=true", "control.executor.enabled=true"], "needs control.executor.secret"),
        (
            ["control.enabled=true", "control.executor.enabled=true", "control.executor.secret=s"],
            "scale would work against HorizontalPodAutoscalers",
        ),
        (["services.scale.env.HIFI_SCALE_BOUNDS=egest=1-2"], "set the value services.NAME.min and max instead"),
        (["services.connect.enabled=true"], "services.connect.enabled needs connect.credentialsSecret"),
        (
            ["services.connect.enabled=true", "connect.credentialsSecret=c", "kafka.security.protocol=SSL"],
            "Kafka Connect knows a Kafka without security, and SASL_SSL",
        ),
        (["kafka.security.protocol=SASL_SSL", "kafka.security.userSecret="], "needs kafka.security.userSecret"),
        (["kafka.security.protocol=SASL_SSL", "kafka.security.mechanism=OAUTHBEARER"], "needs kafka.security.tokenUrl"),
        (["pipes.configMap=a", "pipes.claim=b"], "at most one of pipes.files, pipes.configMap and pipes.claim"),
        (["pipes.files.a/b=x"], 'pipes.files: "a/b" is no file name of a ConfigMap'),
        (["colour.record=c"], "colour.record needs colour.name"),
        (["colour.name=red"], "colour/name"),
        (["test.pipe=orders"], "test.pipe needs test.keySecret, administrator.secret"),
        (["route.enabled=true"], "route.enabled needs route.parents"),
        (["colours.enabled=true"], "colours.enabled needs route.enabled"),
        ([*ROUTE, "colours.enabled=true", "route.weights.a=1"], "the service colours sets them; leave it empty"),
        ([*ROUTE, "colours.enabled=true"], "colours.enabled needs colour.record: hifi-control"),
        ([*ROUTE, *RECORD[:2], "colours.enabled=true"], "needs control.enabled and control.name: hifi-blue"),
        ([*ROUTE, *RECORD, "colours.enabled=true"], "needs colours.url, colours.blue.kafka and colours.green.kafka"),
        (
            [*ROUTE, *RECORD, *COLOURS, "colours.green.name=blue-hifi"],
            "colours.blue and colours.green need different values of release and name",
        ),
        (["colours.green.kafka=kafka"], "colours/green/kafka"),
        (["settings.HIFI_KAFKA=x"], "settings.HIFI_KAFKA: set the value kafka instead"),
        (["services.egest.env.HIFI_DRAIN_S=9"], "set the value services.NAME.drainSeconds instead"),
        (["services.egest.env.HIFI_KAFKA_SECURITY_USER=x"], "set the values of kafka.security"),
        (["services.egest.env.HIFI_PORT=1"], "the images set it"),
        (["services.egest.env.HIFI_EGEST_LANES=1"], "services.egest.env.HIFI_EGEST_LANES: no service has this setting"),
        (["services.egest.env.HIFI_INGEST_PIPE_RATE=1"], "egest does not have this setting, but ingest"),
        (
            ["services.enrich.executors.instances=2", "services.enrich.env.HIFI_ENRICH_MASTER=local"],
            "services.enrich.env.HIFI_ENRICH_MASTER: services.enrich.executors.instances sets it",
        ),
        (
            ["services.enrich.executors.instances=2", "settings.HIFI_ENRICH_MASTER=local"],
            "settings.HIFI_ENRICH_MASTER: services.enrich.executors.instances sets it",
        ),
        (
            [*LAKE_EXECUTORS, "settings.HIFI_PIPES_LAKE_WAREHOUSES=/lake\\,s3://lake"],
            "HIFI_PIPES_LAKE_WAREHOUSES (/lake,s3://lake) has buckets, to which only the pod of lake writes",
        ),
        (
            [*LAKE_EXECUTORS, "services.lake.env.HIFI_PIPES_LAKE_WAREHOUSES=s3://lake"],
            "set services.lake.executors.instances to 0",
        ),
        (["services.state.executors.instances=2"], "'executors' not allowed"),
        (["settings.REGION=eu"], "settings.REGION: settings begin with HIFI_"),
        (["services.egest.env.lower=1"], "services.egest.env.lower: variables are capital letters"),
        (["services.egest.volumes[0].claim=c"], "missing property 'path'"),
    ],
)  # fmt: skip
def test_a_wrong_value_is_refused_with_what_to_change(
    helm: list[str], values: list[str], message: str
) -> None:
    with pytest.raises(HelmRefused) as refusal:
        render(helm, *BASE, *(word for value in values for word in ("--set", value)))
    assert message in str(refusal.value)


def test_the_chart_passes_helms_own_checks(helm: list[str]) -> None:
    subprocess.run([*helm, "lint", "--strict", CHART, *BASE], check=True, capture_output=True)
