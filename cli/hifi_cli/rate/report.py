"""The report of a rating: as JSON and as tables."""

from collections.abc import Mapping
from typing import Any

from rich.table import Table

from hifi_cli.display.tables import table
from hifi_cli.display.units import mebibytes, milliseconds
from hifi_cli.rate.capacity import bottleneck, needs
from hifi_cli.rate.rating import Rating
from hifi_cli.rate.step import RateStep, failure_reason, step_report


def report(rating: Rating, cores: int, desired_rate: float | None) -> dict[str, Any]:
    """Return all results as JSON.

    Args:
        rating: a finished rating.
        cores: cores of the machine.
        desired_rate: events a second to plan instances for; None means the sustained rate.
    """
    mesh, rated_step = rating.load_test.mesh, rating.rated
    instances = {name: len(service_instances) for name, service_instances in mesh.instances.items()}
    load = desired_rate or (rated_step.rate if rated_step else None)
    last_step = rating.steps[-1]
    failed_steps = [step for step in rating.steps if failure_reason(step, rating.slo_ms)]
    limit = bottleneck(
        min(failed_steps, key=lambda step: step.rate) if failed_steps else last_step, cores, instances
    )
    capacity_needs = needs((rated_step or last_step).per_million, load, mesh.partitions or 1) if load else {}
    headroom = rating.headroom
    return {
        "rated": step_report(rated_step, rating.slo_ms) if rated_step else None,
        "slo_ms": rating.slo_ms,
        "trigger": mesh.plan.trigger,
        "batch": rating.load.batch,
        "size_bytes": [rating.load.min_bytes, rating.load.max_bytes] if rating.load.max_bytes else None,
        "seconds_a_step": rating.seconds,
        "warm_up": step_report(rating.warm_up, rating.slo_ms) if rating.warm_up else None,
        "start_seconds": round(rating.start_seconds, 1),
        "cores": cores,
        "partitions": mesh.partitions,
        "instances": instances,
        "ended": failure_reason(min(failed_steps, key=lambda step: step.rate), rating.slo_ms)
        if failed_steps
        else "no rate failed",
        "bottleneck": {"service": limit.service, "why": limit.why},
        "planned_for": round(load, 1) if load else None,
        "needs": {
            name: {"instances": capacity.instances, "cores": round(capacity.cores, 2), "note": capacity.note}
            for name, capacity in capacity_needs.items()
        },
        "headroom": headroom
        and {
            "rate": round(headroom.rate),
            "core_shares": {name: round(share, 2) for name, share in headroom.core_shares.items()},
        },
        "steps": [step_report(step, rating.slo_ms) for step in rating.steps],
    }


def is_whole(rating: Rating) -> bool:
    """Whether a rate was sustained and no accepted event was lost or delivered wrong, also while warming up."""
    steps = [*rating.steps, *([rating.warm_up] if rating.warm_up else [])]
    return rating.rated is not None and not any(step.lost or step.wrong for step in steps)


def line(step: RateStep, reason: str | None) -> str:
    """Describe one step while the rating runs."""
    lag = step.lag_ms
    text = ", ".join(f"{name} {milliseconds(lag[name])}" for name in ("p50", "p95", "p99"))
    pause = f"pause {milliseconds(step.longest_pause_ms)}"
    return f"{step.rate:>8,.0f} ev/s  {text}, {pause}  " + (
        "ok" if reason is None else f"\n{'':>15}failed: {reason}"
    )


def sentence(numbers: Mapping[str, Any]) -> str:
    """Return the result as one sentence."""
    rated_step = numbers["rated"]
    if rated_step is None:
        return f"No rate was sustained: {numbers['ended']}"
    lag, pause = rated_step["lag_ms"], milliseconds(rated_step["longest_pause_ms"])
    p95, p99 = milliseconds(lag["p95"]), milliseconds(lag["p99"])
    return f"Sustained {rated_step['rate']:,.0f} ev/s with p95 {p95} (p99 {p99}, longest pause {pause})"


def tables(numbers: Mapping[str, Any]) -> list[Table]:
    """Make the tables printed at the end."""
    report = [_services(numbers)]
    if numbers["headroom"]:
        report.append(_outside_processes(numbers))
    return report


def _services(numbers: Mapping[str, Any]) -> Table:
    step = numbers["rated"] or numbers["steps"][-1]
    columns = (
        "=service",
        ">CPU-s per\nmillion events",
        ">CPU use\nof a core",
        ">memory",
        ">instances\nneeded",
        "note",
    )
    rows = table(*columns, title=f"\nResources at {step['rate']:,.0f} ev/s")
    for name, cost in step["cpu_seconds_per_million"].items():
        capacity_need = numbers["needs"].get(name, {})
        rows.add_row(
            name,
            f"{cost:,.0f}",
            f"{step['core_shares'][name]:.0%}",
            mebibytes(step["rss_bytes"].get(name, 0)),
            str(capacity_need.get("instances", "-")),
            f"[dim]{capacity_need.get('note', '')}[/]",
        )
    rows.add_row("[bold]all[/]", f"[bold]{sum(step['cpu_seconds_per_million'].values()):,.0f}[/]")
    return rows


def _outside_processes(numbers: Mapping[str, Any]) -> Table:
    rated_step = numbers["rated"] or numbers["steps"][-1]
    headroom = numbers["headroom"]
    rows = table("=process", ">CPU use\nof a core", ">maximum", title="\nSender and destination")
    for name, share in rated_step["outside_core_shares"].items():
        rows.add_row(name, f"{share:.0%}", f"{headroom['core_shares'][name]:.0%}")
    return rows


def footnotes(numbers: Mapping[str, Any]) -> list[str]:
    """Explain the tables."""
    lines = []
    if numbers["planned_for"]:
        lines.append(
            f"\nInstances needed: {numbers['planned_for']:,.0f} ev/s are still carried after the loss of one instance."
        )
    if numbers["headroom"]:
        lines.append(f"Sender and destination without a mesh: {numbers['headroom']['rate']:,} ev/s.")
    warm_up = numbers["warm_up"]
    if warm_up and (warm_up["lost"] or warm_up["wrong"]):
        lines.append(f"While the mesh warmed up, {warm_up['failed']}.")
    return lines
