"""Writes the sections of bench/notes/benchmarks.md from the results of rows.py. Pure."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from markdown_tables import DASH, count, goal, median, ms, one_digit, percent, sound, table, times

MOST_GROWTH, MOST_HARM = 1.3, 1.1
SERVICES = ("ingest", "normalize", "enrich", "egest", "retrier", "observe", "kafka")
TITLES = {
    "partitions": "Partitions, micro-batch",
    "pipes": "Declared pipes, with load on one of them, real-time",
    "destinations": "Destinations, each event for one of them, real-time",
    "lookups": "Rows of an additional lookup table that every event is joined with, real-time",
    "brokers": "Brokers, with as many copies of each event, real-time",
    "instances": "Instances of each service on the same cores, real-time (enrich: one active, one standby)",
}
RESTART = "## Recovery after SIGKILL\n\nReal-time, 100 ev/s, one instance of each service.\n\n"
STANDBY = "## Takeover after SIGKILL\n\nReal-time, 100 ev/s, two instances of the service that is killed.\n\n"
Runs = Sequence[Mapping[str, Any]]
_NOTHING = {"lost": 0, "wrong": 0, "refused": 0}
CHAIN = "FastStream, tuned batches"
MOST_LAG, MOST_MICRO_BATCH_MS = 1.5, 1000.0
ALIVE, DEAD = "ten destinations", "the last of them dead"
DEAD_TEXT = (
    "## One of ten destinations is unavailable\n\nAll ten receive every event. The process of the last one is "
    "killed, so that connections to it are refused. The figures are those of the nine others, before and after, in the "
    "same warm mesh.\n\n"
)
WITHIN_QUOTA, ABOVE_QUOTA = "another pipe at its quota", "another pipe at 5 times its quota"
GREEDY_TEXT = (
    "## A sender that ignores its quota\n\nAnother pipe has a quota of 100 ev/s. Its sender sends as much, then five "
    "times as much whatever is answered. The figures are those of the first pipe, in the same warm mesh.\n\n"
)
MOST_HARM_OF_A_SENDER = 1.2
WITHOUT_BACKFILL, BESIDE_BACKFILL = "no backfill", "a backfill of 200,000 records"
BACKFILL_TEXT = (
    "## A backfill beside live events\n\nThe source of another pipe is a Kafka topic, which has 200,000 records before "
    "it is read, at the default rate of at most 1,000 a second. The figures are those of the first pipe, before and "
    "during the backfill, in the same warm mesh.\n\n"
)
MOST_HARM_OF_A_BACKFILL = 1.2


def trouble(point: Mapping[str, Any]) -> str:
    """The reason why a result must not be shown; empty: it may be shown."""
    if "failed" in point:
        return str(point["failed"]).splitlines()[0]
    steps = point.get("steps", ())
    for step in [*steps, {**point.get("warm_up", _NOTHING), "refused": 0}]:  # the warm-up's: see _remarks
        if not sound(step):
            return f"{step['lost']} lost, {step['wrong']} wrong, {step['refused']} not accepted"
    if not steps and (point.get("lost") or point.get("wrong")):
        return f"{point['lost']} lost, {point['wrong']} wrong"
    return ""


def sections(kinds: Mapping[str, Runs]) -> Iterator[str]:
    """One section for each kind with results."""
    for kind, title in TITLES.items():
        if kind in kinds:
            yield f"## {title}\n\n" + _growth(kinds[kind], by_instance=kind == "instances")
    for kind, section in (
        ("lag", _lags),
        ("dead", lambda results: _harm(results, DEAD_TEXT, ALIVE, DEAD, MOST_HARM)),
        (
            "greedy",
            lambda results: _harm(results, GREEDY_TEXT, WITHIN_QUOTA, ABOVE_QUOTA, MOST_HARM_OF_A_SENDER),
        ),
        (
            "backfill",
            lambda results: _harm(
                results, BACKFILL_TEXT, WITHOUT_BACKFILL, BESIDE_BACKFILL, MOST_HARM_OF_A_BACKFILL
            ),
        ),
        ("backlog", _backlog),
        ("start", _start),
        ("restart", lambda results: _kills(results, RESTART)),
        ("standby", lambda results: _kills(results, STANDBY)),
    ):
        if kind in kinds:
            yield section(kinds[kind])


def _names(results: Runs) -> list[str]:
    return list(dict.fromkeys(name for result in results for name in result["points"]))


def usable_points(results: Runs, name: str) -> list[Mapping[str, Any]]:
    """The results of a row that may be shown, one a run."""
    return [
        result["points"][name]
        for result in results
        if name in result["points"] and not trouble(result["points"][name])
    ]


def _remarks(results: Runs, name: str) -> list[str]:
    points = [result["points"][name] for result in results if name in result["points"]]
    remarks = [f"a run went wrong: {reason}" for reason in dict.fromkeys(map(trouble, points)) if reason]
    cold_refusals = max((point.get("warm_up", _NOTHING)["refused"] for point in points), default=0)
    return [
        *remarks,
        *([f"cold, it refused {cold_refusals:,} events of the warm-up"] if cold_refusals else []),
    ]


def cost_of(point: Mapping[str, Any]) -> float | None:
    return median(sum(step["cpu_seconds_per_million"].values()) for step in point["steps"])


def lag_of(point: Mapping[str, Any], percentile: str) -> float | None:
    return median(step["lag_ms"][percentile] for step in point["steps"])


def ratio_between(results: Runs, name: str, base: str, figure: Any) -> float | None:
    """Ratio of a figure between two rows of the same run; the median over runs that have both."""
    ratios = []
    for result in results:
        point, base_point = (result["points"].get(row_name) for row_name in (name, base))
        if point and base_point and not trouble(point) and not trouble(base_point):
            numerator, denominator = figure(point), figure(base_point)
            if numerator is not None and denominator:
                ratios.append(numerator / denominator)
    return median(ratios)


def _growth(results: Runs, *, by_instance: bool) -> str:
    names = _names(results)
    rows = []
    for name in names:
        points = usable_points(results, name)
        steps = [step for point in points for step in point["steps"]]
        remarks = [
            *dict.fromkeys(step["failed"] for step in steps if step["failed"]),
            *_remarks(results, name),
        ]
        rows.append(
            [
                name,
                len(points),
                count(median(step["rate"] for step in steps)),
                count(median(cost_of(point) for point in points)),
                times(ratio_between(results, name, names[0], cost_of)),
                *(ms(median(lag_of(point, percentile) for point in points)) for percentile in ("p50", "p95")),
                one_digit(median(point["start_seconds"] for point in points)),
                count(median(step["rss_bytes"].get("enrich", 0) / 2**20 for step in steps)),
                one_digit(median(step["load_average"] for step in steps)),
                "; ".join(remarks) or DASH,
            ]
        )
    head = [
        "mesh with",
        "runs",
        "ev/s",
        "CPU-s per million events",
        "relative to first row",
        "p50, ms",
        "p95, ms",
        "start, s",
        "enrich, MiB",
        "load average",
        "remark",
    ]
    text = table(head, rows)
    if len(names) > 1:
        figure_text = f"CPU per event with {names[-1]}, relative to {names[0]},"
        text += "\n" + goal(figure_text, ratio_between(results, names[-1], names[0], cost_of), MOST_GROWTH)
    return text + ("\n" + _shares(results, names) if by_instance else "")


def _shares(results: Runs, names: Sequence[str]) -> str:
    """Share of a core that each instance used under load."""

    def share(point: Mapping[str, Any], service: str) -> float | None:
        instances = point["instances"].get(service, 1)
        return median(step["core_shares"].get(service, 0) / max(1, instances) for step in point["steps"])

    rows = [
        [
            name,
            *(
                percent(median(share(point, service) for point in usable_points(results, name)))
                for service in SERVICES
            ),
        ]
        for name in names
    ]
    head = [
        "share of a core per instance (kafka: all brokers; enrich: mean of active and standby)",
        *SERVICES,
    ]
    return table(head, rows)


def _lags(results: Runs) -> str:
    rows, goals = [], ""
    for name in _names(results):
        points = usable_points(results, name)
        steps = [step for point in points for step in point["steps"]]
        p95 = median(lag_of(point, "p95") for point in points)
        rows.append(
            [
                name,
                len(points),
                count(median(step["rate"] for step in steps)),
                *(
                    ms(median(lag_of(point, percentile) for point in points))
                    for percentile in ("p50", "p95", "p99")
                ),
                ms(median(step["longest_pause_ms"] for step in steps)),
                ms(median(step["answer_ms"]["p95"] for step in steps)),
                count(median(cost_of(point) for point in points)),
                "; ".join(_remarks(results, name)) or DASH,
            ]
        )
        if name == "mesh, real-time":
            for percentile in ("p50", "p95"):
                ratio = ratio_between(
                    results, name, CHAIN, lambda point, percentile=percentile: lag_of(point, percentile)
                )
                goals += "\n" + goal(f"{name}: {percentile}, relative to {CHAIN},", ratio, MOST_LAG)
        elif name == "mesh, micro-batch":
            goals += "\n" + goal(f"{name}: p95", p95, MOST_MICRO_BATCH_MS, "ms")
    head = [
        "chain",
        "runs",
        "ev/s",
        "p50, ms",
        "p95, ms",
        "p99, ms",
        "longest pause, ms",
        "p95 of ingest's response, ms",
    ]
    head += ["CPU-s per million events", "remark"]
    return (
        "## Lag of single events with default settings\n\nAfter 30 s of load, without Java's second compiler "
        "(ratings "
        "use it).\n\n" + table(head, rows) + goals
    )


def _harm(results: Runs, text: str, before: str, after: str, bound: float) -> str:
    """Lag of some pipes or destinations before and after an event at another one."""
    rows = []
    for name in _names(results):
        points = usable_points(results, name)
        lags = [
            ms(median(lag_of(point, percentile) for point in points)) for percentile in ("p50", "p95", "p99")
        ]
        rate = median(step["rate"] for point in points for step in point["steps"])
        rows.append([name, len(points), count(rate), *lags, "; ".join(_remarks(results, name)) or DASH])
    ratio = ratio_between(results, after, before, lambda point: lag_of(point, "p95"))
    return (
        text
        + table(["mesh with", "runs", "ev/s", "p50, ms", "p95, ms", "p99, ms", "remark"], rows)
        + "\n"
        + goal("p95 of the others, relative to that before,", ratio, bound)
    )


def _backlog(results: Runs) -> str:
    text = "## A destination becomes available after hours\n"
    for name in _names(results):
        points = usable_points(results, name)
        text += "".join(f"\n- {name}: {reason}\n" for reason in _remarks(results, name))
        if not points:
            continue
        tiers, configured = points[0]["tiers"], points[0]["configured"]

        def of(key: str, points: Sequence[Mapping[str, Any]] = points) -> float | None:
            return median(point[key] for point in points)

        rate = of("per_second") or 0.0
        text += (
            f"\nIt refused {count(of('refused'))} events with 503; {count(of('in_retry_topics'))} deliveries "
            f"waited in retry topics when it became available. The tiers were {tiers} instead of hours, so that "
            f"every delivery had passed every tier within a minute. Runs: {len(points)}.\n\n"
            f"Its rate limit is {configured:,.0f} requests a second. It received {rate:,.0f} a second (median "
            f"over 90 % of the time, {rate / configured:.0%} of the limit; {count(of('fullest_second'))} in the "
            f"busiest second). "
            f"The first request came {one_digit(of('first_after_s'))} s after it became available, the last "
            f"{one_digit(of('drained_s'))} s later.\n\n"
        )
        rows = []
        for path, title in (("/away", "this destination"), ("/other", "the other destination")):
            before, during = (
                median(point[key][path]["p95"] for point in points) for key in ("before_ms", "during_ms")
            )
            ratio = during / before if before and during is not None else None
            rows.append([title, count(points[0]["fresh_rate"]), ms(before), ms(during), times(ratio)])
        head = ["new events to", "ev/s", "p95 before, ms", "p95 meanwhile, ms", "ratio"]
        text += table(head, rows)
    return text


def _start(results: Runs) -> str:
    rows = []
    for name in _names(results):
        seconds = [second for point in usable_points(results, name) for second in point["seconds"]]
        rows.append(
            [name, len(seconds), one_digit(median(seconds)), "; ".join(_remarks(results, name)) or DASH]
        )
    return (
        "## Start time, from `hifi up` to ready\n\nReal-time, the demo's pipe, one broker, including observe. "
        "The file "
        "cache of the system was not cleared.\n\n"
        + table(["start", "starts", "seconds to ready", "remark"], rows)
    )


def _kills(results: Runs, title: str) -> str:
    rows = []
    for name in _names(results):
        points = [result["points"][name] for result in results if name in result["points"]]
        usable = usable_points(results, name)
        rows.append(
            [
                name,
                len(points),
                *(
                    times(median(point[key] for point in usable))
                    for key in ("flowing_again_s", "longest_pause_s")
                ),
                *(
                    count(sum(point.get(key, 0) for point in points))
                    for key in ("not_accepted", "lost", "duplicates", "wrong")
                ),
                "; ".join(_remarks(results, name)) or DASH,
            ]
        )
    head = [
        "killed",
        "runs",
        "until a later event is delivered, s",
        "longest pause of deliveries, s",
        "not accepted, events",
        "lost, events",
        "duplicates",
        "wrong arrivals",
        "remark",
    ]
    return title + table(head, rows)
