"""hifi status: services, their readiness and rates, the consumer backlog, sources, and the published pipes."""

import asyncio
import time
from dataclasses import asdict, dataclass
from typing import Annotated, Any, Final

import typer
from aiokafka.errors import KafkaError
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from hifi.control.verdict import Condition, VerdictJson
from hifi.kafka.certificate_reports import ReportedCertificates
from hifi.kafka.topic_identity import topic_identity
from hifi.kafka.visit import read_topics
from hifi.pipe.registry import read_registry
from hifi.runtime.errors import HifiError
from hifi_cli.commands.pipes import NO_PIPES
from hifi_cli.commands.sources import sources_of, sources_table
from hifi_cli.display.console import console, print_json
from hifi_cli.display.tables import print_table, table
from hifi_cli.display.units import count
from hifi_cli.error_reporting import report_errors
from hifi_cli.mesh_state import service_metrics
from hifi_cli.mesh_state.target import Target, kafka_target
from hifi_cli.options import DEFAULT_DATA, AsJson, Data, Kafka, Stream, Wide
from hifi_infra.kafka.backlog import ConsumerBacklog, read_backlog
from hifi_infra.mesh.health_probe import readiness
from hifi_infra.mesh.running import RunningInstance

LOG_WITHIN_S: Final = 15.0
"""Time within which Kafka must say the identity of the stream's log, or the reports of certificates, seconds."""
_CLIENT: Final = "hifi-status"
_UNTOLD: Final = "one before 0.1.0rc2"


@dataclass(frozen=True, slots=True)
class InstanceStatus:
    """The state of one instance. `rate_per_s`: events or records that it reads each second; None if unknown."""

    name: str
    service: str
    pid: int
    port: int
    ready: bool
    state: str
    waiting: list[str]
    rate_per_s: float | None
    log: str


@report_errors
async def status(
    data: Data = DEFAULT_DATA,
    kafka: Kafka = None,
    stream: Stream = None,
    seconds: Annotated[
        float,
        typer.Option(
            "--over", min=0.1, max=60, metavar="SECONDS", help="Time over which rates are measured."
        ),
    ] = 1.0,
    *,
    wide: Wide = False,
    as_json: AsJson = False,
) -> None:
    """Show the services with their readiness and rates, the consumer backlog, the sources, and the published pipes.

    Backlog: `waiting` are records that the service has not processed, `in running
    batch` records that it has processed but not committed (Spark commits at the
    end of a batch). Exit status: 0 if every service is ready, 1 if not.

    Examples:
      hifi status
      hifi status --json | jq .backlog
      hifi status --kafka broker1:9092,broker2:9092 --stream orders
    """
    target = kafka_target(data, kafka, stream)
    stream_status = await gather(target, seconds)
    if as_json:
        print_json(stream_status)
    else:
        print_status(stream_status, console, wide=wide)
    if not stream_status["ready"]:
        raise typer.Exit(1)


async def gather(target: Target, seconds: float) -> dict[str, Any]:
    """Collect everything that `hifi status --json` prints."""
    mesh = target.running
    instances, (backlog, pipes, problem), log, certificates = await asyncio.gather(
        _instances(mesh.instances if mesh else [], seconds),
        _stream(target),
        _log(target),
        _certificates(target),
    )
    observed_state = await _observed(target)
    return {
        "stream": target.topics.stream,
        "stream_log": log,
        "kafka": target.kafka,
        "url": mesh.url if mesh else None,
        "console": mesh.console if mesh else None,
        "trigger": mesh.trigger if mesh else None,
        "brokers": mesh.brokers if mesh else None,
        "ready": problem is None and all(instance.ready for instance in instances),
        "problem": problem,
        "instances": [asdict(instance) for instance in instances],
        "verdicts": await _verdicts(target),
        "colours": observed_state.get("colours", []),
        "ingest_releases": observed_state.get("ingest_releases", []),
        "backlog": backlog.waiting,
        "uncommitted": backlog.uncommitted,
        "sources": await _sources(target),
        "certificates": certificates,
        "pipes": pipes,
    }


async def _instances(instances: list[RunningInstance], seconds: float) -> list[InstanceStatus]:
    ports = [instance.port for instance in instances]
    counters_before = await service_metrics.read_all_counters(ports)
    answers = await asyncio.gather(*map(readiness, ports))
    if instances:
        await asyncio.sleep(seconds)
    counters_after = await service_metrics.read_all_counters(ports)
    statuses = []
    for instance, answer in zip(instances, answers, strict=True):
        counter = service_metrics.ACCEPTED if instance.service == "ingest" else service_metrics.READ
        statuses.append(
            InstanceStatus(
                f"{instance.service}-{instance.number}",
                instance.service,
                instance.pid,
                instance.port,
                answer.ready,
                answer.state,
                list(answer.waiting.values()),
                service_metrics.per_second(
                    counters_before[instance.port], counters_after[instance.port], counter
                ),
                str(instance.log),
            )
        )
    return statuses


async def _stream(target: Target) -> tuple[ConsumerBacklog, list[dict[str, Any]], str | None]:
    """Return the backlog, the pipes, and the error if Kafka does not answer."""
    try:
        registry = await read_registry(target.kafka, target.topics)
        pipes = [
            {
                "pipe": name,
                "revision": revision.number,
                "destinations": [destination.name for destination in revision.pipe.destinations],
                "description": revision.pipe.description,
            }
            for name, revision in sorted(registry.pipes.items())
        ]
        return await read_backlog(target.kafka, target.topics), pipes, None
    except HifiError as error:
        return ConsumerBacklog(), [], str(error)


async def _log(target: Target) -> str | None:
    """The identity of the stream's log; None if Kafka does not say it."""
    try:
        async with asyncio.timeout(LOG_WITHIN_S):
            return (await topic_identity(target.kafka, target.topics.raw)).topic or None
    except (KafkaError, OSError, TimeoutError):
        return None


async def _verdicts(target: Target) -> list[VerdictJson] | None:
    """Observe's verdicts; None without a control plane, or while its Kafka does not answer."""
    if target.control is None:
        return None
    try:
        return [verdict.json() for verdict in await target.control.verdicts()]
    except HifiError:
        return None


async def _observed(target: Target) -> dict[str, Any]:
    """The status of observe; without observe, or if it does not answer, empty."""
    if (observe := target.observe) is None:
        return {}
    try:
        return await asyncio.to_thread(observe.get, "/api/v1/status")
    except HifiError:
        return {}


async def _certificates(target: Target) -> list[str]:
    """The certificates that expire soon, as services reported them; empty if Kafka does not answer."""
    reported_certificates = ReportedCertificates()
    try:
        async with asyncio.timeout(LOG_WITHIN_S):
            await read_topics(target.kafka, _CLIENT, {target.topics.certificates: reported_certificates.take})
    except (KafkaError, OSError, TimeoutError):
        return []
    now_s = time.time()
    return [certificate.text(now_s) for certificate in reported_certificates.expiring(now_s)]


async def _sources(target: Target) -> list[dict[str, Any]]:
    """The progress of the sources, as observe knows it; empty without sources, or if it does not answer."""
    if (observe := target.observe) is None:
        return []
    try:
        return await asyncio.to_thread(sources_of, observe)
    except HifiError:
        return []


def print_status(stream_status: dict[str, Any], output: Console, *, wide: bool = False) -> None:
    """Print the result of `gather` for people."""
    output.print(
        f"Stream [bold]{stream_status['stream']}[/] on Kafka {stream_status['kafka']}",
        highlight=False,
        soft_wrap=True,
    )
    if stream_status["stream_log"]:
        output.print(f"Log {stream_status['stream_log']}", highlight=False, soft_wrap=True)
    if stream_status["url"]:
        output.print(
            f"Ingest {stream_status['url']}, Spark trigger {stream_status['trigger']}",
            highlight=False,
            soft_wrap=True,
        )
    if stream_status["console"]:
        output.print(f"Console {stream_status['console']}", highlight=False, soft_wrap=True)
    if stream_status["problem"]:
        output.print(f"[red]{escape(stream_status['problem'])}[/]", highlight=False, soft_wrap=True)
    for certificate in stream_status["certificates"]:
        output.print(f"[yellow]Warning: {escape(certificate)}[/]", highlight=False, soft_wrap=True)
    if stream_status["verdicts"] is not None:
        _print_verdicts(stream_status["verdicts"], output)
    if stream_status["colours"]:
        _print_colours(stream_status["colours"], output)
    _print_flow(stream_status, output, wide=wide)
    if not stream_status["pipes"]:
        output.print(f"\n{NO_PIPES}")
        return
    rows = table("pipe", ">revision", "destinations", "description", title="\nPipes")
    for pipe in stream_status["pipes"]:
        rows.add_row(
            pipe["pipe"], str(pipe["revision"]), ", ".join(pipe["destinations"]), escape(pipe["description"])
        )
    print_table(rows, output)


def _print_verdicts(verdicts: list[VerdictJson], output: Console) -> None:
    unstable = [verdict for verdict in verdicts if verdict["condition"] != Condition.STABLE]
    if verdicts and not unstable:
        output.print("Health [green]stable[/]", highlight=False)
    elif not verdicts:
        output.print("Health [yellow]unknown[/]: observe gives no verdict", highlight=False)
    for verdict in unstable:
        reasons = escape("; ".join(verdict["reasons"]))
        output.print(
            f"Health of {verdict['scope']} [yellow]{verdict['condition']}[/]: {reasons}",
            highlight=False,
            soft_wrap=True,
        )


def _print_flow(stream_status: dict[str, Any], output: Console, *, wide: bool) -> None:
    if len(stream_status["ingest_releases"]) > 1:
        releases = ", ".join(release or _UNTOLD for release in stream_status["ingest_releases"])
        output.print(
            f"Processes of ingest run on several releases: {releases}", highlight=False, soft_wrap=True
        )
    if stream_status["instances"]:
        print_table(_instance_table(stream_status["instances"], wide=wide), output)
    if stream_status["backlog"]:
        print_table(_backlog_table(stream_status), output)
    if stream_status["sources"]:
        print_table(sources_table(stream_status["sources"], time.time(), title="\nSources"), output)


def _print_colours(colours: list[dict[str, Any]], output: Console) -> None:
    shares = (f"{colour['colour']} {colour['state']} {100 * colour['share']:g} %" for colour in colours)
    output.print(f"Colours {', '.join(shares)} of the requests", highlight=False)


def _instance_table(instances: list[dict[str, Any]], *, wide: bool) -> Table:
    extra_columns = [">pid", ">port", "log"] if wide else []
    rows = table("=instance", "=state", ">rate\nev/s", *extra_columns, "waiting for", title="\nServices")
    for instance in instances:
        state = f"[{'green' if instance['ready'] else 'yellow'}]{instance['state']}[/]"
        extra_cells = [str(instance["pid"]), str(instance["port"]), escape(instance["log"])] if wide else []
        rows.add_row(
            instance["name"],
            state,
            count(instance["rate_per_s"]),
            *extra_cells,
            escape("; ".join(instance["waiting"])),
        )
    return rows


def _backlog_table(stream_status: dict[str, Any]) -> Table:
    rows = table("=service", ">waiting\nrecords", ">in running batch\nrecords", title="\nConsumer backlog")
    for service, record_count in stream_status["backlog"].items():
        rows.add_row(service, count(record_count), count(stream_status["uncommitted"].get(service)))
    return rows
