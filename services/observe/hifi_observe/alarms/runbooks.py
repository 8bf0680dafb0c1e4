"""What to do about each kind of alarm: the one source of the console's page and of docs/runbooks.md. Pure.

Text between backquotes is code. In commands PIPE, MINUTE, SERVICE and the like stand for what the alarm names.
"""

import re
import textwrap
from dataclasses import dataclass
from typing import Final

PATH: Final = "/runbooks"
"""Of the console's page."""
_WIDTH: Final = 120
_CODE: Final = re.compile(r"`([^`]+)`")


@dataclass(frozen=True, slots=True)
class Runbook:
    """For one kind of alarm."""

    means: str
    causes: tuple[str, ...]
    """Likely ones, the likeliest first."""
    steps: tuple[str, ...]
    """What to do, in this order."""


RUNBOOKS: Final = {
    "loss": Runbook(
        "A closed minute lost more events than its pipe allows: a service committed past them and "
        "nothing came of them. It ends by itself, about ten minutes after the last such minute "
        "closed.",
        (
            ("At the hop ingest: a broker came back with less than it had (unclean shutdown, a lost disk)."),
            (
                "At any other hop: somebody moved that service's committed offsets, or Kafka deleted records "
                "before they were read."
            ),
            "A defect of the service at that hop: please report it.",
        ),
        (
            ("Name the events and their hop: `hifi lost PIPE MINUTE`, or the minute's page in the console."),
            (
                "Look at that minute in the service's log (`docker logs hifi-SERVICE-1`, or the terminal of "
                "`hifi up`) for `offsets-lost` and `record-poisoned`, and in the broker's log for a "
                "truncation."
            ),
            (
                "Have the sender send the named events again, not before 10 minutes after the first time: "
                "until then they are taken for repetitions."
            ),
        ),
    ),
    "lag": Runbook(
        "The p95 from accepted to delivered is over the pipe's SLO now, over all its destinations.",
        (
            (
                "A destination answers slowly, or its `concurrency` or `rate` in the pipe is too small "
                "for the traffic."
            ),
            (
                "A service has too few instances: its part of the way, or the transit before it, takes the time."
            ),
            "A service is stuck; then there is a `no-progress` alarm too.",
        ),
        (
            "See which part takes the time: the pipe's page, Where the time goes.",
            (
                "A destination: speed it up, or raise `concurrency` or `rate` of it in the pipe, then "
                "`hifi apply DIR`."
            ),
            (
                "A service: `hifi status` shows what waits before it; add instances, as in `hifi up --scale "
                "egest=2`, at most one a partition."
            ),
        ),
    ),
    "availability": Runbook(
        "A closed minute was down: its p95 was over the SLO (lag), it lost too much (loss), or ingest "
        "was silent or answered 5xx (ingest). The cause says which.",
        (
            "lag and loss: those of the alarms with these names.",
            (
                "ingest: no ingest process ran, Kafka did not take its writes, or more than 1 % of its "
                "answers were 5xx."
            ),
        ),
        (
            "Open the minute from the pipe's page, or `hifi minutes PIPE`: its causes, hops and lags.",
            (
                "lag or loss: follow that runbook. ingest: follow `ingest-silent`, and look for 5xx in "
                "`hifi_ingest_requests_total`."
            ),
            (
                "Nothing needs to be repaired in the minute itself: what comes late still amends it for "
                "an hour."
            ),
        ),
    ),
    "dead-letters": Runbook(
        "Events or deliveries are being refused for good: dead letters grow. They are kept for 30 "
        "days and can be replayed.",
        (
            "The sender changed its data: normalize refuses it (reason `schema`, for example).",
            "The pipe was changed and no longer fits the data.",
            (
                "A destination refuses events: `status-400`, `status-422`; or gave no good answer for as "
                "long as the pipe allows: `gave-up`."
            ),
        ),
        (
            (
                "Who refuses them, and why: `hifi dead list --pipe PIPE --since 1h`, one of them: `hifi "
                "dead show ID`; or the pipe's page, Dead letters."
            ),
            "Mend the sender, the pipe (`hifi check DIR`, `hifi apply DIR`) or the destination.",
            (
                "Let them go again: `hifi dead replay --pipe PIPE --reason REASON`, or that page with the "
                "operator token. Repeating it is harmless."
            ),
        ),
    ),
    "destination": Runbook(
        "The last ten or more outcomes of a destination, over all partitions, were the same failing "
        "answer, counting deliveries that were put off because of it. They are kept and tried again; "
        "nothing else is held up. It ends when a delivery succeeds, or the pipe no longer declares "
        "the destination.",
        (
            "The destination is down (`connect`, `timeout`, 5xx), or asks for less (429).",
            "Its credentials or its address are wrong: 401, 403, 404, `dns`, `tls`.",
            "The network between egest and it.",
        ),
        (
            "The answer, and since when the circuit breaker is open: the pipe's page, Destinations.",
            (
                "Ask it from where egest runs: `curl -sv URL`, with the method and headers that the pipe "
                "declares."
            ),
            (
                "Mend the destination; or its secret (from a file it is read again within a minute); or "
                "its URL in the pipe, then `hifi apply DIR`. What waits goes by itself, at most an hour "
                "later."
            ),
            (
                "What became a dead letter meanwhile: `hifi dead replay --pipe PIPE --destination "
                "DESTINATION`."
            ),
        ),
    ),
    "no-progress": Runbook(
        "A service has committed nothing on a partition for a minute, although records wait there.",
        (
            "No instance of the service runs, or none is ready.",
            "It is stuck: on Kafka, on its CPU or memory, or on a record that it cannot get past.",
            "It waits for a pipe's version that it does not know yet.",
        ),
        (
            ("`hifi status`: is the service there and ready, and if not, why? Its `/readyz` says the same."),
            (
                "Read the end of its log: `docker logs --tail 100 hifi-SERVICE-1`, or the terminal of `hifi up`."
            ),
            "Restart it (`docker restart hifi-SERVICE-1`): nothing is lost by that.",
        ),
    ),
    "ingest-silent": Runbook(
        "No ingest process has told what it acknowledges for longer than `HIFI_OBSERVE_HEARTBEAT_GAP_S`; "
        "each does so every second. Senders probably get no 2xx.",
        (
            "No ingest process runs.",
            "Kafka does not take its writes.",
            "Ingest cannot reach Kafka.",
        ),
        (
            ("`hifi status`, or `curl -s http://INGEST/readyz`: is one running and ready, and if not, why?"),
            "Is Kafka up, with enough brokers in sync? Look at its log.",
            (
                "Restart ingest (`docker restart hifi-ingest-1`). Senders may repeat what they got no 2xx "
                "for: within 10 minutes it is delivered once."
            ),
        ),
    ),
    "traffic": Runbook(
        "Events per second are over `HIFI_OBSERVE_RATING_SHARE` of `HIFI_OBSERVE_RATING`, the rate "
        "that this mesh is known to carry.",
        (
            "The traffic grows.",
            "A sender repeats itself.",
            "The rating is that of a smaller mesh than this one.",
        ),
        (
            "Whose traffic it is: the console's first page, or `hifi top`.",
            (
                "Add instances before it is too late: `hifi up --scale SERVICE=N`; `hifi rate` says what a "
                "load needs."
            ),
            "Set `HIFI_OBSERVE_RATING` to what the larger mesh carries.",
        ),
    ),
    "observe-behind": Runbook(
        "What observe shows is old, or nobody observes some partitions. Delivery does not depend on "
        "it; what it missed is judged once it has caught up, and nothing is missing then.",
        (
            "Kafka is away, or slow.",
            "observe was just started, or took over partitions, and reads what it missed.",
            "There are too few instances of it for the traffic.",
        ),
        (
            "How old, and what is observed by whom: `curl -s CONSOLE/api/v1/status` of each instance.",
            "Is Kafka up? `hifi status` asks it.",
            "If it does not catch up within minutes, add an instance: `hifi up --scale observe=2`.",
        ),
    ),
    "offsets-lost": Runbook(
        "Kafka had deleted records before observe read them: minutes of that time are not complete. "
        "It ends by itself, an hour and ten minutes after the last of them.",
        (
            "observe was off for longer than the topics are kept (7 days).",
            "A topic's retention was made shorter, or is bounded by size.",
        ),
        (
            "Which topics and offsets: `offsets-lost` in observe's log.",
            (
                "Did a service miss some, too? `hifi_offsets_skipped_total` above 0 is a loss of events, not "
                "of knowledge alone."
            ),
            (
                "Look at the topic's retention with `kafka-configs.sh --bootstrap-server KAFKA --describe "
                "--entity-type topics --entity-name STREAM.TOPIC`; it should be 7 days, and none by size."
            ),
        ),
    ),
}
"""Kind of alarm to what to do."""


def link(kind: str, console: str = "") -> str:
    """Where a person reads what to do: a path of the console, or a URL where the console's is known."""
    return f"{console.rstrip('/')}{PATH}#{kind}"


def spans(text: str) -> list[tuple[bool, str]]:
    """A text as a page shows it: whether it is code, and what."""
    return [(bool(at % 2), part) for at, part in enumerate(_CODE.split(text)) if part]


def markdown() -> str:
    """The sections of docs/runbooks.md."""
    return "\n".join(_section(kind, one) for kind, one in RUNBOOKS.items())


def _section(kind: str, one: Runbook) -> str:
    lines = [
        f"## {kind}", "", _wrapped(one.means), "", "Likely causes:", "", *(_wrapped(each, "- ") for each in one.causes),
        "", "What to do:", "", *(_wrapped(each, f"{n}. ") for n, each in enumerate(one.steps, 1)), "",
    ]  # fmt: skip
    return "\n".join(lines)


def _wrapped(text: str, mark: str = "") -> str:
    # Code is not broken: a line's end within it reads as a space, but is copied as a line's end.
    held = _CODE.sub(lambda match: match[0].replace(" ", "\0"), text)
    wrapped = textwrap.fill(
        held, _WIDTH, initial_indent=mark, subsequent_indent=" " * len(mark), break_long_words=False,
        break_on_hyphens=False,
    )  # fmt: skip
    return wrapped.replace("\0", " ")
