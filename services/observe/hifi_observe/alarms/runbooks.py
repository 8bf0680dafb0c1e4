"""Runbooks: what to do about each kind of alarm. The console's page and docs/runbooks.md are made from them. Pure.

Text between backquotes is code. In commands, PIPE, MINUTE, SERVICE and so on are placeholders.
"""

import re
from dataclasses import dataclass
from typing import Final

PATH: Final = "/runbooks"
"""Path of the console's page."""
CODE: Final = re.compile(r"`([^`]+)`")
"""Code in a text."""


@dataclass(frozen=True, slots=True)
class Runbook:
    """The runbook of one kind of alarm."""

    means: str
    causes: tuple[str, ...]
    """Likely causes, the most likely first."""
    steps: tuple[str, ...]
    """Steps in the order in which to take them."""


RUNBOOKS: Final = {
    "loss": Runbook(
        "A closed minute lost more events than its pipe allows: a service committed past their records without "
        "writing a successor. The alarm ends about ten minutes after the last such minute closed.",
        (
            "Hop ingest: a broker restarted with fewer records than before (unclean shutdown, lost disk).",
            (
                "Any other hop: the committed offsets of that service were moved, or Kafka deleted records "
                "before they were read."
            ),
            "A defect of the service at that hop: please report it.",
        ),
        (
            (
                "List the lost events and their hop: `hifi lost PIPE MINUTE`, or the page of the minute in the "
                "console."
            ),
            (
                "Search the log of the service for that minute (`docker logs hifi-SERVICE-1`, or the terminal "
                "of `hifi up`) for `offsets-lost` and `record-poisoned`, and the log of the broker for a "
                "truncation."
            ),
            (
                "Ask the sender to send the listed events again, at the earliest 10 minutes after the first "
                "time: before that, normalize drops them as duplicates."
            ),
        ),
    ),
    "lag": Runbook(
        "The p95 lag from accepted to delivered is over the pipe's SLO now, over all its destinations.",
        (
            (
                "A destination answers slowly, or its `concurrency` or `rate` in the pipe is too small for the "
                "traffic."
            ),
            "A service has too few instances: the time passes in its processing, or in the transit before it.",
            "A service makes no progress; then there is a `no-progress` alarm too.",
        ),
        (
            "See which step takes the time on the page of the pipe in the console.",
            (
                "If it is a destination: make it faster, or raise its `concurrency` or `rate` in the pipe, "
                "then run `hifi apply DIR`."
            ),
            (
                "If it is a service: `hifi status` shows its backlog; add instances, for example with `hifi up "
                "--scale egest=2`, at most one for each partition."
            ),
        ),
    ),
    "availability": Runbook(
        "A closed minute was down: its p95 lag was over the SLO (lag), it lost too many events (loss), or "
        "ingest's heartbeat had a gap or ingest answered 5xx (ingest). The alarm names the cause.",
        (
            "lag and loss: see the alarms of these names.",
            (
                "ingest: no ingest process ran, Kafka did not accept its writes, or more than 1 % of its "
                "answers were 5xx."
            ),
        ),
        (
            (
                "Open the minute from the page of the pipe, or run `hifi minutes PIPE`: it shows causes, hops "
                "and lags."
            ),
            (
                "lag or loss: follow that runbook. ingest: follow `ingest-silent`, and check "
                "`hifi_ingest_requests_total` for 5xx."
            ),
            "The minute itself needs no repair: late arrivals amend it for an hour.",
        ),
    ),
    "dead-letters": Runbook(
        "There are new dead letters: events or deliveries that were refused permanently. They are kept for 30 "
        "days and can be replayed.",
        (
            "The sender changed its data, so that normalize refuses it (for example with reason `schema`).",
            "The pipe was changed and no longer matches the data.",
            (
                "A destination refuses events (`status-400`, `status-422`), or failed for as long as the pipe "
                "allows (`gave-up`)."
            ),
        ),
        (
            (
                "See which service refuses them, and why: `hifi dead list --pipe PIPE --since 1h`; a single "
                "one with `hifi dead show ID`; or the dead letters of the pipe in the console."
            ),
            "Fix the sender, the pipe (`hifi check DIR`, `hifi apply DIR`) or the destination.",
            (
                "Replay them: `hifi dead replay --pipe PIPE --reason REASON`, or in the console with the "
                "operator token. Repeating a replay is harmless."
            ),
        ),
    ),
    "destination": Runbook(
        "At least the last ten outcomes of a destination, over all partitions, were the same failing answer, "
        "including deliveries that were postponed because of it. These deliveries are kept and retried; other "
        "destinations are not affected. The alarm ends when a delivery succeeds, or when the pipe no longer "
        "declares the destination.",
        (
            "The destination is down (`connect`, `timeout`, 5xx), or limits the rate (429).",
            "Its credentials or its address are wrong: 401, 403, 404, `dns`, `tls`.",
            "The network between egest and the destination fails.",
        ),
        (
            (
                "See the answer, and since when the circuit breaker is open, on the page of the pipe in the "
                "console."
            ),
            (
                "Send a request from where egest runs: `curl -sv URL`, with the method and headers that the "
                "pipe declares."
            ),
            (
                "Fix the destination; or its secret (a file is read again within a minute); or its URL in the "
                "pipe, then `hifi apply DIR`. Waiting deliveries are retried automatically, at most an hour "
                "later."
            ),
            (
                "Replay what became a dead letter in the meantime: `hifi dead replay --pipe PIPE --destination "
                "DESTINATION`."
            ),
        ),
    ),
    "parked": Runbook(
        "The deliveries of a destination are parked: each waits as one copy on the topic `parked` instead of going "
        "through the retry topics again and again. They are kept for 30 days. The alarm ends when the destination is "
        "active again.",
        (
            (
                "The destination has failed for longer than `HIFI_EGEST_PARK_AFTER_S`, or its failed deliveries have "
                "more bytes than `HIFI_EGEST_PARK_BYTES`."
            ),
            "An operator parked it: `hifi destinations park PIPE DESTINATION`.",
        ),
        (
            "See who parked it, when and why: `hifi destinations list`.",
            (
                "Fix the destination. If egest parked it, it becomes active with the first delivery that succeeds, and "
                "what is parked comes back at the pace of the destination."
            ),
            "If an operator parked it, bring the deliveries back: `hifi destinations resume PIPE DESTINATION`.",
            (
                "If nobody wants these deliveries any more, make dead letters of them: `hifi destinations expire PIPE "
                "DESTINATION`."
            ),
        ),
    ),
    "credentials": Runbook(
        "At least the last ten outcomes of a destination were 401 or 403: it refuses the credentials that "
        "the pipe sends. Retries do not help, so the owner of the pipe is told. Deliveries are kept and "
        "retried, or are dead letters that can be replayed, as the pipe declares. The alarm ends when a "
        "delivery succeeds.",
        (
            "The credentials have expired, were revoked, or were changed at the destination only.",
            "The credentials lack a permission that the destination has begun to ask for (403).",
        ),
        (
            "Get new credentials from the destination.",
            (
                "Replace the secret that the pipe names (`auth` or `headers` of the destination). A file "
                "is read again within a minute; an environment variable needs a restart of egest."
            ),
            (
                "Replay what became a dead letter in the meantime: `hifi dead replay --pipe PIPE "
                "--destination DESTINATION`."
            ),
        ),
    ),
    "endpoint-moved": Runbook(
        "At least the last ten outcomes of a destination were 404, 410, a redirect, or `dns`: there is "
        "nothing at its URL any more. Retries do not help, so the owner of the pipe is told. Deliveries "
        "are kept and retried, or are dead letters that can be replayed, as the pipe declares. The alarm "
        "ends when a delivery succeeds.",
        (
            "The destination has a new URL (301, 308), or its path has changed (404, 410).",
            "The host name does not exist any more, or has never existed (`dns`).",
        ),
        (
            "Ask for the new URL; after a redirect it is in the header `Location`: `curl -si -X POST URL`.",
            (
                "Change `url` of the destination in the pipe, then run `hifi apply DIR` or publish it in the "
                "console of manage."
            ),
            (
                "Replay what became a dead letter in the meantime: `hifi dead replay --pipe PIPE "
                "--destination DESTINATION`."
            ),
        ),
    ),
    "events-refused": Runbook(
        "In ten minutes normalize refused at least five events of a pipe because of what is in them. They "
        "are dead letters, and retries do not help, so the owner of the pipe is told. The cause names the "
        "places in the data that were refused most. The alarm ends about ten minutes after the last such "
        "event.",
        (
            "One place: a sender writes a field in another way than before, or leaves it out.",
            "Several places: the schema of a sender has changed.",
            "`not-json`: a sender encodes its events wrongly, or sends other ones to this pipe.",
        ),
        (
            "See what was refused, where and why: `hifi dead list --pipe PIPE`.",
            (
                "If the events are right, change `normalize` of the pipe (the schema, or the mapping of "
                "the field) and run `hifi apply DIR`; then `hifi dead replay --pipe PIPE`."
            ),
            "If they are wrong, ask the sender to correct them and to send them again.",
        ),
    ),
    "skew": Runbook(
        "A field that its pipe watches has another distribution than before: over both halves of the last minutes "
        "(`HIFI_OBSERVE_SKEW_WINDOW_MINUTES`), its Jensen-Shannon distance from the minutes before is a drift. Events "
        "are delivered as usual. The alarm ends ten minutes after the distance has fallen below 0.7 of the "
        "threshold, or when the reference consists of events like the new ones.",
        (
            "The sender changed what it sends: another unit, scale, code or default, or the field is missing.",
            "A lookup table, a derived field or a function of the pipe changed, or a rollout began.",
            (
                "What the events describe has changed, or differs by the time of day: traffic that follows the hour "
                "needs a longer window."
            ),
        ),
        (
            "See how: `hifi skew PIPE`, or the watched fields on the page of the pipe, shows both distributions.",
            (
                "Check what changed at that time: `hifi rollout status`, the tables of the lookups, and the sender. "
                "If values are missing or null more often, look at one of the events."
            ),
            (
                "If the change is intended, silence the alarm until the reference has taken it in "
                "(`HIFI_OBSERVE_SKEW_REFERENCE_MINUTES`), or change the `bounds` or `values` of `watch`: then the "
                "comparison starts anew."
            ),
        ),
    ),
    "no-progress": Runbook(
        "A service has committed nothing on a partition for a minute, and its output shows no progress, "
        "although records are waiting there.",
        (
            "No instance of the service runs, or none is ready.",
            "The service is blocked: by Kafka, by a lack of CPU or memory, or by a poison record.",
            "The service waits for a version of a pipe that it has not read yet.",
        ),
        (
            (
                "Check with `hifi status` whether the service is ready, and if not, why. Its `/readyz` gives "
                "the same reason."
            ),
            "Read the end of its log: `docker logs --tail 100 hifi-SERVICE-1`, or the terminal of `hifi up`.",
            "Restart it (`docker restart hifi-SERVICE-1`): a restart loses no events.",
        ),
    ),
    "ingest-silent": Runbook(
        "No ingest process has written an ack report for longer than `HIFI_OBSERVE_HEARTBEAT_GAP_S`; each "
        "writes one every second. Senders probably get no 2xx.",
        (
            "No ingest process runs.",
            "Kafka does not accept the writes of ingest.",
            "Ingest cannot reach Kafka.",
        ),
        (
            (
                "Check with `hifi status` or `curl -s http://INGEST/readyz` whether ingest is ready, and if "
                "not, why."
            ),
            "Check that Kafka is up, with enough brokers in sync: read its log.",
            (
                "Restart ingest (`docker restart hifi-ingest-1`). Senders can repeat requests that got no 2xx: "
                "duplicates within 10 minutes are dropped."
            ),
        ),
    ),
    "traffic": Runbook(
        "The rate of events is over `HIFI_RATING_SHARE` of `HIFI_RATING`, the scale rating of this mesh.",
        (
            "The traffic grows.",
            "A sender repeats its events.",
            "The scale rating was measured on a smaller mesh.",
        ),
        (
            "See which pipe has the traffic: the overview of the console, or `hifi top`.",
            "Add instances in time: `hifi up --scale SERVICE=N`; `hifi rate` shows how many a load needs.",
            (
                "With two colours, give half of the requests to the other one: `hifi colour split`. `hifi up --colours "
                "--split-above N` does so by itself."
            ),
            "Set `HIFI_RATING` to the rating of the larger mesh.",
        ),
    ),
    "observe-behind": Runbook(
        "The figures of observe are old, or no instance observes some partitions. Delivery does not depend on "
        "observe; the minutes that it missed are closed once it has caught up, and they are complete then.",
        (
            "Kafka is down or slow.",
            "observe was just started, or took over partitions, and reads what it missed.",
            "There are too few instances of observe for the traffic.",
        ),
        (
            (
                "See how old the figures are, and which instance observes which partitions: `curl -s "
                "CONSOLE/api/v1/status` of each instance."
            ),
            "Check that Kafka is up: `hifi status`.",
            "If observe does not catch up within minutes, add an instance: `hifi up --scale observe=2`.",
        ),
    ),
    "source-deleted": Runbook(
        "Kafka deleted records of a source's topic before collect read them: they are lost to the pipe, and later ones "
        "are read as usual. The alarm ends an hour and ten minutes after the last of them.",
        (
            "collect was off, or the pipe was paused, for longer than the retention of the topic.",
            "The topic's retention by size is small for its backlog, or somebody deleted records.",
        ),
        (
            "Note the offsets in the alarm; the log of collect has them, too: `source-records-deleted`.",
            "Raise `retention.ms` and `retention.bytes` of the topic.",
            "Have the producer of the topic write the data again; for `debezium` give the pipe another name and topic.",
        ),
    ),
    "offsets-lost": Runbook(
        "Kafka deleted records before observe read them, so minutes of that time are incomplete. The alarm "
        "ends an hour and ten minutes after the last of them.",
        (
            "observe was off for longer than the retention of the topics (7 days).",
            "The retention of a topic was shortened, or is limited by size.",
        ),
        (
            "Find the topics and offsets in the log of observe: `offsets-lost`.",
            (
                "Check whether a service missed records too: if `hifi_offsets_skipped_total` is above 0, "
                "events were lost, not only figures."
            ),
            (
                "Check the retention of the topic with `kafka-configs.sh --bootstrap-server KAFKA --describe "
                "--entity-type topics --entity-name STREAM.TOPIC`; it should be 7 days, without a limit by "
                "size."
            ),
        ),
    ),
}
"""Kind of alarm to its runbook."""


def link(kind: str, console: str = "") -> str:
    """The address of a runbook: a path of the console, or a URL if the console's URL is known."""
    return f"{console.rstrip('/')}{PATH}#{kind}"


def spans(text: str) -> list[tuple[bool, str]]:
    """Split a text into parts: whether each is code, and the part."""
    return [(bool(at % 2), part) for at, part in enumerate(CODE.split(text)) if part]
