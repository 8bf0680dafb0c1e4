"""Declare the connector of a source to Kafka Connect, and watch it."""

import asyncio
import hashlib
import re
from typing import Any, Final

import aiohttp
import orjson

from hifi.pipe.sources.kind import Warn
from hifi.runtime import log
from hifi.runtime.connect_credentials import authorization
from hifi.runtime.egress import EgressKind, EgressRefused, egress
from hifi.runtime.errors import Misconfigured, Retryable
from hifi_debezium.declaration import DebeziumSource
from hifi_debezium.source.columns import NAMED_TYPES, placeholder
from hifi_debezium.source.slot import drop_slot

_TIMEOUT: Final = aiohttp.ClientTimeout(total=60)
_WATCH_S: Final = 5.0
_SUBJECT: Final = "connector"
_LONGEST_NAME: Final = 63
"""Of a replication slot and a publication, bytes."""
_PLAIN_NAME: Final = re.compile(r"^[a-z0-9]+$")
_HEARTBEAT: Final = "hifi-heartbeat"
"""Prefix of the messages that move a slot."""
_SLOT: Final = ("database.hostname", "database.port", "database.dbname", "slot.name")
"""Settings that name a slot."""
_TABLES: Final = "table.include.list"
_OK: Final = 200
_BAD_REQUEST: Final = 400
_UNAUTHORIZED: Final = 401
_NOT_FOUND: Final = 404
_CONFLICT: Final = 409
_JSON: Final = {"Content-Type": "application/json"}
"""Kafka Connect wants it of requests without a body, too."""

logger = log.get(__name__)


class Connector:
    """The connector of one pipe, `<stream>.<pipe>`, with a slot and a publication of one name."""

    def __init__(self, stream: str, pipe: str, source: DebeziumSource) -> None:
        self.name: Final = f"{stream}.{pipe}"
        self._stream, self._pipe = stream, pipe
        self._source = source

    def config(self) -> dict[str, str]:
        """The connector's configuration."""
        source, database = self._source, self._source.database
        slot = slot_name(self._stream, self._pipe)
        converter = "org.apache.kafka.connect.json.JsonConverter"
        fixed_settings = {
            "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
            "tasks.max": "1",
            # A change has one offset of the topic, and only one, which identifies its event.
            "exactly.once.support": "required",
            "database.hostname": database.host,
            "database.port": str(database.port),
            "database.dbname": database.name,
            "database.user": database.user,
            "database.password": f"${{dir:{database.password_file.parent}:{database.password_file.name}}}",
            "database.sslmode": database.sslmode,
            "plugin.name": "pgoutput",
            "slot.name": slot,
            "publication.name": slot,
            "publication.autocreate.mode": "filtered",
            _TABLES: ",".join(re.escape(table) for table in source.tables),
            "topic.prefix": source.topic,
            # All tables in one partition: the order of commits.
            "transforms": "route",
            "transforms.route.type": "org.apache.kafka.connect.transforms.RegexRouter",
            "transforms.route.regex": rf"{re.escape(source.topic)}\.[^.]+\.[^.]+",
            "transforms.route.replacement": source.topic,
            "topic.creation.default.partitions": "1",
            "topic.creation.default.replication.factor": "-1",
            "key.converter": converter,
            "key.converter.schemas.enable": "false",
            "value.converter": converter,
            # The types of the columns are in each record; compressed they take little room.
            "value.converter.schemas.enable": "true",
            "producer.override.compression.type": "zstd",
            "tombstones.on.delete": "false",
            "skipped.operations": "none",
            # Begin and end of a snapshot, in the order of its rows.
            "notification.enabled.channels": "sink",
            "notification.sink.topic.name": source.topic,
            # No value is changed, as far as Debezium lets it be.
            "decimal.handling.mode": "string",
            "interval.handling.mode": "string",
            "time.precision.mode": "adaptive",
            "binary.handling.mode": "bytes",
            "hstore.handling.mode": "json",
            "include.unknown.datatypes": "true",
            "datatype.propagate.source.type": NAMED_TYPES,
            "unavailable.value.placeholder": placeholder(source.topic),
        }
        defaults = {
            # Where the slot is gone, so are changes: all rows are read again.
            "snapshot.mode": "when_needed",
            "poll.interval.ms": "50",
            "heartbeat.interval.ms": "10000",
            # While other tables are busy and these are not, the slot moves by this message.
            "heartbeat.action.query": f"SELECT pg_logical_emit_message(false, '{_HEARTBEAT}', '')",
            "message.prefix.exclude.list": ".*",  # they are no changes of rows
            # A slot that another connector reads is reported soon.
            "slot.max.retries": "2",
            "slot.retry.delay.ms": "5000",
            # A fault that lasts is reported soon, too, and ends the task, which is started again.
            "errors.max.retries": "2",
        }
        return {**defaults, **source.settings, **fixed_settings}

    async def declare(self) -> None:
        """Create the connector, or change it if it differs.

        Raises:
            Misconfigured: Kafka Connect refuses the configuration, or the slot is another one's; the message says why.
            Retryable: Kafka Connect does not answer, or not yet.
        """
        config = self.config()
        self._judge_database()
        await self._require_slot(config)
        status, current_config = await self._request("GET", f"/connectors/{self.name}/config")
        if status == 200 and {name: current_config.get(name) for name in config} == config:
            return
        status, answer = await self._request("PUT", f"/connectors/{self.name}/config", config)
        if status in (200, 201):
            logger.info("connector-declared", connector=self.name)
        elif status in (_NOT_FOUND, _CONFLICT) or status >= 500:  # not found: a worker that starts
            raise Retryable(f"Kafka Connect does not accept the connector yet: {_reason(status, answer)}")
        else:
            raise Misconfigured(f"Kafka Connect refuses the connector {self.name}: {_reason(status, answer)}")

    async def added_tables(self) -> list[str]:
        """The declared tables that the connector does not have before it is changed; empty if there is none yet.

        Raises:
            Retryable: Kafka Connect does not answer, or not yet.
        """
        status, config = await self._request("GET", f"/connectors/{self.name}/config")
        if status == _CONFLICT or status >= 500:
            raise Retryable(f"Kafka Connect does not tell the connector yet: {_reason(status, config)}")
        if status != _OK or not (listed := config.get(_TABLES)):
            return []
        table_names = {name.strip().replace("\\", "").lower() for name in listed.split(",")}
        return [table for table in self._source.tables if table.replace("\\", "").lower() not in table_names]

    async def renew(self) -> None:
        """Have all rows read again, with another slot: only with a new one no change is missing between the two.

        Raises:
            Misconfigured: collect may not drop the slot.
            Retryable: it has to be called again.
        """
        status, answer = await self._request("DELETE", f"/connectors/{self.name}")
        if status >= _BAD_REQUEST and status != _NOT_FOUND:
            raise Retryable(f"Kafka Connect does not delete the connector yet: {_reason(status, answer)}")
        try:
            await drop_slot(self._source, self.config()["slot.name"], self._pipe)
        except Misconfigured:
            await self.declare()
            raise
        await self.declare()

    async def _require_slot(self, config: dict[str, str]) -> None:
        status, connectors = await self._request("GET", "/connectors?expand=info")
        if status != _OK:
            return  # it does not list them; the first connector that reads the slot has it
        for name, connector in connectors.items():
            other_config = connector.get("info", {}).get("config", {})
            if name != self.name and all(other_config.get(setting) == config[setting] for setting in _SLOT):
                raise Misconfigured(
                    f"the replication slot {config['slot.name']} of the database {config['database.dbname']} belongs "
                    f"to the connector {name}: delete that one, or give the pipe another name"
                )

    def _judge_database(self) -> None:
        """Judge the host of the database, whose name Kafka Connect resolves by itself.

        Raises:
            Misconfigured: it is not allowed, or a name that the operator does not allow as such.
        """
        database = self._source.database
        try:
            egress(self._pipe).require_fixed(EgressKind.DATABASE, database.host, database.port)
        except EgressRefused as error:
            raise Misconfigured(f"the database of the source cannot be used: {error}") from error

    async def watch(self, warn: Warn) -> None:
        """Show why the connector does not run, and restart what has failed of it, until cancelled."""
        while True:
            try:
                warn(_SUBJECT, await self._failure())
            except Retryable as error:
                warn(_SUBJECT, str(error))
            except Exception as error:  # such as credentials that are being written: look again
                logger.exception("connector-not-watched", connector=self.name)
                warn(_SUBJECT, f"the connector {self.name} cannot be watched: {error}")
            await asyncio.sleep(_WATCH_S)

    async def _failure(self) -> str | None:
        """The reason why the connector does not run; it is restarted then. None: it runs.

        Raises:
            Retryable: Kafka Connect does not answer.
        """
        status, answer = await self._request("GET", f"/connectors/{self.name}/status")
        if status != 200:
            await self._declare_again()
            return f"Kafka Connect does not know {self.name}: {_reason(status, answer)}"
        components = [answer["connector"], *answer["tasks"]]
        failed_component = next(
            (component for component in components if component["state"] == "FAILED"), None
        )
        if failed_component is None:
            return None
        logger.error("connector-failed", connector=self.name, trace=failed_component.get("trace", ""))
        restart = f"/connectors/{self.name}/restart?includeTasks=true&onlyFailed=true"
        status, answer = await self._request("POST", restart)
        outcome = (
            "is restarted" if status < _BAD_REQUEST else f"cannot be restarted ({_reason(status, answer)})"
        )
        return f"it failed and {outcome}: {_cause(failed_component.get('trace', ''))}"

    async def _declare_again(self) -> None:
        try:
            await self.declare()
        except Misconfigured as error:
            raise Retryable(str(error)) from error

    async def _request(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        url = self._source.connect + path
        try:
            async with (
                aiohttp.ClientSession(
                    timeout=_TIMEOUT, connector=egress(self._pipe).connector(EgressKind.CONNECT, url)
                ) as session,
                session.request(
                    method, url, json=body, headers=_JSON | authorization(url), allow_redirects=False
                ) as response,
            ):
                body_text = await response.read()
        except (aiohttp.ClientError, TimeoutError, ValueError) as error:
            raise Retryable(f"Kafka Connect does not answer at {url}: {error!r}") from error
        try:
            return response.status, orjson.loads(body_text)
        except orjson.JSONDecodeError:
            # The refusal of a login is plain text, which Kafka Connect calls JSON.
            return response.status, {}


def slot_name(stream: str, pipe: str) -> str:
    """Name of the slot and the publication of a pipe: `hifi_<stream>_<pipe>`, with a hash where that is ambiguous."""
    name = re.sub(r"[^a-z0-9_]", "_", f"hifi_{stream}_{pipe}".lower())
    if _PLAIN_NAME.match(stream) and _PLAIN_NAME.match(pipe) and len(name) <= _LONGEST_NAME:
        return name
    digest = hashlib.sha256(f"{stream}.{pipe}".encode()).hexdigest()[:8]
    return f"{name[: _LONGEST_NAME - len(digest) - 1]}_{digest}"


def _reason(status: int, answer: Any) -> str:
    """The answer of Kafka Connect to a request as text, which may be nothing but its status."""
    if status == _UNAUTHORIZED:
        return (
            "it wants credentials: have the operator put them into HIFI_CONNECT_CREDENTIALS_FILE of collect"
        )
    message = answer.get("message", "") if isinstance(answer, dict) else ""
    return f"HTTP {status}, {message}" if message else f"HTTP {status}"


def _cause(trace: str) -> str:
    """The innermost cause of a Java stack trace, in one line."""
    causes = [line for line in trace.splitlines() if line.startswith("Caused by:")]
    return (causes[-1].removeprefix("Caused by: ") if causes else trace.partition("\n")[0])[:500]
