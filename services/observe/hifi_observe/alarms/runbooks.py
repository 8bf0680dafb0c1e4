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


_REPLAY: Final = "Replay what became a dead letter: `hifi dead replay --pipe PIPE --destination DESTINATION`."

RUNBOOKS: Final = {
    "loss": Runbook(
        (
            "A minute lost more events than its pipe allows. The alarm ends ten minutes after the last such minute."
        ),
        (
            "Hop ingest: a broker restarted with fewer records than before (unclean shutdown, lost disk).",
            "Another hop: its committed offsets were moved, or Kafka deleted records before they were read.",
            "A defect of the service at that hop: please report it.",
        ),
        (
            "List the lost events and their hop: `hifi lost PIPE MINUTE`, or the console.",
            (
                "Search the log of the service for `offsets-lost` and `record-poisoned`, and that of the "
                "broker for a truncation."
            ),
            (
                "Ask the sender to send the events again, at least 10 minutes after the first time: "
                "before, they are duplicates."
            ),
        ),
    ),
    "step-loss": Runbook(
        (
            "Events that a step read are in no window, or some are there twice: results in these windows are wrong. "
            "Or events that do not count have no dead letter. The alarm ends fifteen minutes after the last such "
            "event was found."
        ),
        (
            "Results were computed anew after their events were deleted, or events exceed the budget of SQL.",
            "A defect of the service state: please report it.",
        ),
        (
            "See which events: `hifi step explain STEP --partition N --offset FIRST..LAST` with what the alarm names.",
            "Search the log of state for `step-records-lost`, `state-file-unusable` and `step-recovered`.",
            "Tell those who use the results which windows the events belong to: `hifi step explain` shows it.",
        ),
    ),
    "lag": Runbook(
        "The p95 lag over all destinations of the pipe is above its SLO.",
        (
            "A destination answers slowly, or its `concurrency` or `rate` is too small for the traffic.",
            "A service has too few instances.",
            "A service makes no progress.",
        ),
        (
            "See on the page of the pipe in the console which part takes the time.",
            "A destination: make it faster, or raise its `concurrency` or `rate` and run `hifi apply DIR`.",
            "A service: add instances, at most one for each partition: `hifi up --scale egest=2`.",
        ),
    ),
    "availability": Runbook(
        "A closed minute was down because of lag, loss or ingest.",
        (
            "lag: the p95 was above the SLO. loss: too many events were lost.",
            "ingest: none ran, Kafka did not accept its writes, or more than 1 % of its answers were 5xx.",
        ),
        (
            "Open the minute in the console, or run `hifi minutes PIPE`.",
            (
                "Follow the runbook `lag`, `loss` or `ingest-silent`; check `hifi_ingest_requests_total` "
                "for 5xx."
            ),
            "The minute needs no repair: late arrivals amend it for an hour.",
        ),
    ),
    "dead-letters": Runbook(
        "Events or deliveries were refused. They are kept for 30 days; most can be replayed.",
        (
            "The sender changed its data, so that normalize refuses it (`schema`).",
            "The pipe does not match the data.",
            (
                "A destination refuses events (`status-400`, `status-422`), or failed for as long as the "
                "pipe allows (`gave-up`)."
            ),
        ),
        (
            (
                "See which service refuses them, and why: `hifi dead list --pipe PIPE --since 1h`, `hifi "
                "dead show ID`."
            ),
            "Fix the sender, the pipe (`hifi check DIR`, `hifi apply DIR`) or the destination.",
            "Replay them: `hifi dead replay --pipe PIPE --reason REASON`.",
        ),
    ),
    "destination": Runbook(
        (
            "The last ten or more outcomes of a destination were the same failure. Most failures "
            "are retried. The alarm ends when a delivery succeeds."
        ),
        (
            "The destination is down (`connect`, `timeout`, 5xx), or limits the rate (429).",
            "Its credentials or its address are wrong: 401, 403, 404, `dns`, `tls`.",
            "The network between egest and the destination fails.",
        ),
        (
            "See the answer on the pipe's page in the console.",
            "Send a request from where egest runs: `curl -sv URL`, with the method and headers of the pipe.",
            (
                "Fix the destination, its secret (a file is read again within a minute) or its URL (`hifi apply DIR`)."
            ),
            _REPLAY,
        ),
    ),
    "parked": Runbook(
        (
            "Deliveries wait on the topic `parked` until the destination is active again; after 27 of the 30 days "
            "that Kafka keeps them they become dead letters (`expired`)."
        ),
        (
            (
                "It failed for `HIFI_EGEST_PARK_AFTER_S`, or its failed deliveries exceed "
                "`HIFI_EGEST_PARK_BYTES`."
            ),
            "An operator parked it: `hifi destinations park PIPE DESTINATION`.",
        ),
        (
            "See who parked it, when and why: `hifi destinations list`.",
            (
                "Fix the destination. If egest parked it, it becomes active with the first delivery that "
                "succeeds."
            ),
            "If an operator parked it: `hifi destinations resume PIPE DESTINATION`.",
            "To make dead letters of the deliveries: `hifi destinations expire PIPE DESTINATION`.",
        ),
    ),
    "credentials": Runbook(
        (
            "The last ten or more outcomes of a destination were 401 or 403. The owner is "
            "notified. The alarm ends when a delivery succeeds."
        ),
        (
            "The credentials expired, were revoked, or were changed at the destination only.",
            "They lack a permission (403).",
        ),
        (
            "Get new credentials from the destination.",
            (
                "Replace the secret that the pipe names (`auth` or `headers`). A file "
                "is read again within a minute; an environment variable needs a restart of egest."
            ),
            _REPLAY,
        ),
    ),
    "endpoint-moved": Runbook(
        (
            "The last ten or more outcomes of a destination were 404, 410, a redirect, or `dns`. "
            "The owner is notified. The alarm ends when a delivery succeeds."
        ),
        (
            "It has a new URL (301, 308), or its path has changed (404, 410).",
            "The host name does not exist (`dns`).",
        ),
        (
            "Find the new URL; after a redirect it is in the header `Location`: `curl -si -X POST URL`.",
            "Change `url` in the pipe, then run `hifi apply DIR` or publish it in the management console.",
            _REPLAY,
        ),
    ),
    "events-refused": Runbook(
        (
            "normalize refused at least five events in ten minutes for their content. The owner "
            "is notified. The alarm names the places in the data, and ends ten minutes after the "
            "last such event."
        ),
        (
            "One place: a sender writes a field in another way, or leaves it out.",
            "Several places: the schema of a sender has changed.",
            "`not-json`: a sender encodes its events wrongly, or sends them to the wrong pipe.",
        ),
        (
            "See what was refused, where and why: `hifi dead list --pipe PIPE`.",
            (
                "If the events are right, change `normalize` of the pipe and run `hifi apply DIR`; then "
                "`hifi dead replay --pipe PIPE`."
            ),
            "If they are wrong, ask the sender to send them again, corrected.",
        ),
    ),
    "skew": Runbook(
        (
            "A watched field has another distribution than before: in both halves of "
            "`HIFI_OBSERVE_SKEW_WINDOW_MINUTES`. Events are delivered as usual. The alarm ends ten "
            "minutes after the distance has fallen below 0.7 of the threshold."
        ),
        (
            ("The sender changed a unit, scale, code or default, or leaves the field out."),
            "A lookup table, a derived field or a function of the pipe changed, or a rollout began.",
            "What the events describe has changed, or follows the hour of the day: lengthen the window.",
        ),
        (
            "See both distributions: `hifi skew PIPE`, or the page of the pipe.",
            "Check what changed then: `hifi rollout status`, lookup tables, the sender.",
            (
                "If it is intended, silence the alarm for `HIFI_OBSERVE_SKEW_REFERENCE_MINUTES`, or "
                "change `bounds` or `values` of `watch` to start the comparison anew."
            ),
        ),
    ),
    "no-progress": Runbook(
        (
            "Records wait on a partition, and for a minute a service has neither committed there nor "
            "written output."
        ),
        (
            "No instance of the service runs, or none is ready.",
            "It is blocked: by Kafka, by a lack of CPU or memory, or by a poison record.",
            "It waits for a version of a pipe that it has not read yet.",
        ),
        (
            "Check whether it is ready: `hifi status`, or its `/readyz`.",
            "Read the end of its log.",
            "Restart it (`docker restart hifi-SERVICE-1`): a restart loses no events.",
        ),
    ),
    "ingest-silent": Runbook(
        (
            "No ingest has written an ack report for `HIFI_OBSERVE_HEARTBEAT_GAP_S`. Senders probably get "
            "no 2xx."
        ),
        (
            "No ingest process runs.",
            "Kafka does not accept its writes, or cannot be reached.",
        ),
        (
            ("Check whether ingest is ready: `hifi status`, or `curl -s http://INGEST/readyz`."),
            "Check in Kafka's log that it is up, with enough brokers in sync.",
            "Restart it (`docker restart hifi-ingest-1`). Senders can repeat what got no 2xx.",
        ),
    ),
    "traffic": Runbook(
        "The rate of events is above `HIFI_RATING_SHARE` of `HIFI_RATING`, the rating of this mesh.",
        ("The traffic grows, a sender repeats its events, or the rating is of a smaller mesh.",),
        (
            "See which pipe has the traffic: `hifi top`, or the console.",
            "Add instances: `hifi up --scale SERVICE=N`; `hifi rate` shows how many a load needs.",
            "With blue-green meshes, give half of the requests to the idle one: `hifi colour split`.",
            "Set `HIFI_RATING` to the rating of the larger mesh.",
        ),
    ),
    "observe-behind": Runbook(
        "The figures of observe are old, or nobody observes some partitions. Delivery does not depend on it.",
        (
            "Kafka is down or slow.",
            "observe was just started, or took over partitions.",
            "There are too few instances of observe for the traffic.",
        ),
        (
            "See how old they are: `hifi top --once`.",
            "Check that Kafka is up: `hifi status`.",
            ("If catching up takes long, add an instance: `hifi up --scale observe=2`."),
        ),
    ),
    "source-deleted": Runbook(
        (
            "Kafka deleted records of a source's topic before collect read them. The alarm ends "
            "an hour and ten minutes later."
        ),
        (
            "collect was off, or the pipe was paused, for longer than the retention of the topic.",
            "The topic's retention by size is small for its backlog, or somebody deleted records.",
        ),
        (
            "Note the offsets: they are in the alarm.",
            "Raise `retention.ms` and `retention.bytes` of the topic.",
            "Have the data written again; for `debezium` give the pipe another name and topic.",
        ),
    ),
    "source-held": Runbook(
        "A database keeps its log for a replication slot that is not read, and its disk may fill.",
        (
            "Kafka Connect is away, or the connector fails: see `hifi sources` and `/readyz` of collect.",
            "A long transaction is open in the database.",
            "The pipe was deleted, and its slot was not.",
        ),
        (
            "See what the slot waits for: `SELECT * FROM pg_replication_slots`.",
            "Start Kafka Connect, or correct what its status says; the slot moves by itself then.",
            "For a pipe that is gone, drop the slot: `SELECT pg_drop_replication_slot('NAME')`.",
        ),
    ),
    "source-rows": Runbook(
        "Rows of a captured database are gone without changes of their own, or may be missing or too many.",
        (
            "A TRUNCATE, or a snapshot for a lost slot. This alarm ends after ten minutes.",
            "A snapshot was interrupted, and collect may not drop its slot.",
            "Somebody deleted the topic with the keys of rows.",
        ),
        (
            "Ask the owner of the table whether the TRUNCATE was meant.",
            "If the alarm names a slot, drop it: `SELECT pg_drop_replication_slot('NAME')`. All rows come again.",
        ),
    ),
    "lookup": Runbook(
        "Enrich keeps the last good copy of a lookup table, or the table has no rows.",
        ("The file or table was emptied or cut, a column became null, or it cannot be read.",),
        ("Correct it; the next refresh ends the alarm. If the loss is meant, declare `shrink: 1`.",),
    ),
    "certificate": Runbook(
        (
            "A certificate expires within `HIFI_CERTIFICATE_DAYS` (14), or has expired. The alarm ends within half an "
            "hour of the renewal."
        ),
        ("Its renewal failed, or nothing renews it.",),
        (
            "Replace the file that the alarm names. Services read it again; restart enrich, lake, state.",
            "`kafka-broker`: replace the broker's certificate; `hifi up --secure` does it at its start.",
        ),
    ),
    "unreadable-record": Runbook(
        (
            "A record of a control topic, such as `pipes` or `destinations`, cannot be read. One of `pipes` holds its "
            "pipe: no new events, dead letters `pipe-unreadable`, retries. Others are skipped."
        ),
        (
            "A newer or older release, or a program that is not hifi's, wrote it.",
            "The record was damaged.",
        ),
        (
            "Find topic, key and offset in the alarm, and the error in the log of observe: `record-unreadable`.",
            (
                "Write the record of that key again with hifi: `hifi apply DIR` for `pipes`, with the release that "
                "wrote it, or delete the pipe first; `hifi destinations resume PIPE DESTINATION` for `destinations`. "
                "The alarm ends with the next readable record of the key."
            ),
            "Replay the dead letters: `hifi dead replay --reason pipe-unreadable`.",
            "See who may write the topic: `hifi acl show`.",
        ),
    ),
    "offsets-lost": Runbook(
        (
            "Kafka deleted records before observe read them, so minutes of that time are incomplete. The "
            "alarm ends an hour and ten minutes later."
        ),
        (
            "observe was off for longer than the retention of the topics (7 days).",
            "The retention of a topic was shortened, or is limited by size.",
        ),
        (
            "Find the topics and offsets in the log of observe: `offsets-lost`.",
            "If `hifi_offsets_skipped_total` of a service is above 0, events were lost, not only figures.",
            (
                "Check that its retention is 7 days, without a limit by size: `kafka-configs.sh "
                "--bootstrap-server KAFKA --describe --entity-type topics --entity-name STREAM.TOPIC`."
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
    return [(bool(index % 2), segment) for index, segment in enumerate(CODE.split(text)) if segment]
