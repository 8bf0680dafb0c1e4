"""Every text of a pipe or view with every hostile value: it is refused with its line, or it is inert for a reason.

A new field of a schema without a row fails, and so does a row whose reasons are not those that are needed.
"""

import copy
import inspect
import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest
from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo

from hifi.check.pipe_check import check_folder
from hifi.pipe.model import Pipe
from hifi.pipe.source import declarations
from hifi.pipe.sources.step import StepSource
from hifi.pipe.view import View
from hifi.spark.catalyst import Catalyst
from hifi.spark.check import check_pipe
from hifi.spark.spark_session import local_spark
from hifi.spark.step_check import step_problems
from hifi_cli.reference.annotations import declared_type, models
from hifi_cli.reference.pages import _settings_of_kinds

METADATA: Final = "169.254.169.254"
HOSTILE: Final[Mapping[str, str]] = {
    "private host": "10.0.0.1",
    "private URL": "http://10.0.0.1/",
    "private server": "10.0.0.1:9092",
    "metadata host": METADATA,
    "metadata URL": f"http://{METADATA}/latest/meta-data/",
    "metadata in decimal": "http://2852039166/",
    "IPv4 in IPv6": f"http://[::ffff:{METADATA}]/",
    "name that is bound again": "https://rebind.example/",
    "${…}": "${dir:/run/kafka:password}",
    "file:": "file:///etc/passwd",
    "class": "java.lang.Runtime",
    "$ref": '{"$ref": "http://169.254.169.254/"}',
    "IDENTIFIER": "IDENTIFIER('raise_error')('x')",
    "path traversal": "../../etc/passwd",
    "control character": "a\x00b",
    "line break": "a\r\nb",
}
URLS: Final = {"private URL", "metadata URL", "metadata in decimal", "IPv4 in IPv6"}

KEYS: Final = {"keys": [{"env": "ORDERS_KEY"}]}
SHOP: Final = {"name": "shop", "url": "https://shop.example/"}
SECURITY: Final = {"protocol": "SASL_SSL", "user": "u", "password_file": "/run/secrets/p"}
TOKENS: Final = SECURITY | {"mechanism": "OAUTHBEARER", "token_url": "https://login.example/token"}
CERTIFICATE: Final = {
    "protocol": "SSL",
    "ca_file": "/run/secrets/ca.pem",
    "certificate_file": "/run/secrets/c.pem",
    "key_file": "/run/secrets/k.pem",
}
REGISTRY: Final = {
    "url": "https://registry.example/",
    "user": "u",
    "password_file": "/run/secrets/r",
    "ca_file": "/run/secrets/ca.pem",
}
S3: Final = {"bucket": "b", "prefix": "p", "endpoint": "https://s3.example", "region": "r",
             "access_key": {"env": "A"}, "secret_key": {"env": "B"}}  # fmt: skip
DATABASE: Final = {"host": "db.example", "name": "shop", "user": "u", "password_file": "/run/secrets/d"}
SOURCES: Final[Mapping[str, dict[str, Any]]] = {
    "http": KEYS | {"type": "a.b", "id": "id", "time": "at", "partition_key": "k",
                    "mask": {"data": {}, "attributes": {}}},
    "kafka": {"kind": "kafka", "bootstrap": "a:9092", "topic": "t", "type": "a", "deleted_type": "b",
              "partition_key": "k", "format": "avro", "registry": REGISTRY, "security": SECURITY},
    "debezium": {"kind": "debezium", "connect": "https://connect.example", "bootstrap": "a:9092", "topic": "t",
                 "database": DATABASE, "tables": ["a.b"], "type": "a", "settings": {}},
    "sql": {"kind": "sql", "database": DATABASE, "table": "t", "column": "id", "key": ["k"],
            "partition_key": "k", "type": "a"},
    "query": {"kind": "sql", "database": DATABASE, "query": "select 1", "column": "id"},
    "folder": {"kind": "objects", "folder": "/sources/a", "pattern": "*", "format": "csv", "delimiter": ",",
               "partition_key": "k", "type": "a"},
    "bucket": {"kind": "objects", "s3": S3, "format": "csv"},
    "step": {"kind": "step", "from": "flights", "where": "true", "key": {"a": "string"}, "window": {"tumbling": 60},
             "fields": {"n": "count(*)"}, "type": "a"},
    "join": {"kind": "step", "from": "flights", "key": {"a": "string"}, "fields": {"n": "a"},
             "join": {"with": "trains", "within": 60, "where": "true", "fields": {"m": "a"}}},
}  # fmt: skip
FLIGHTS: Final = {"pipe": "flights", "source": {"keys": [{"sha256": "0" * 64}]},
                  "enrich": {"fields": {"a": "string"}}, "destinations": [SHOP]}  # fmt: skip
"""The pipe that the step reads."""
TRAINS: Final = FLIGHTS | {"pipe": "trains", "source": {"keys": [{"sha256": "1" * 64}]}}
"""The pipe that the join reads, too."""
DESTINATIONS: Final[Mapping[str, dict[str, Any]]] = {
    "http": SHOP | {"when": "true", "transform": "@", "headers": {"x-a": "b"}, "signing": {"env": "S"},
                    "tls": {"ca": {"env": "C"}},
                    "proxy": {"url": "http://proxy.example:3128", "user": "u", "password": {"env": "P"}},
                    "oauth": {"token_url": "https://login.example/token", "client_id": "c",
                              "client_secret": {"env": "O"}, "scope": "s"}},
    "kafka": {"name": "d", "kind": "kafka", "settings": {
        "bootstrap": "a:9092", "topic": "t", "format": "avro", "key_attribute": "subject", "headers": {"a": "b"},
        "positions_topic": "p", "security": SECURITY,
        "avro": {"registry": REGISTRY, "subject": "s", "schema": {"type": "record", "name": "r", "fields": []}}}},
    "postgres": {"name": "d", "kind": "postgres", "settings": {
        "url": {"env": "DB"}, "table": "t", "columns": {"a": "b"}, "attributes": {"t": "time"}, "key": ["a"],
        "delete_when": {"op": "d"}, "tombstones": "g", "partition_column": "p", "offset_column": "o"}},
    "folder": {"name": "d", "kind": "objects", "settings": {"folder": "/objects/a", "columns": {"a": {"path": "b"}}}},
    "bucket": {"name": "d", "kind": "objects", "settings": {"s3": S3}},
    "iceberg": {"name": "d", "kind": "iceberg", "settings": {
        "warehouse": "s3://b/w", "table": "a.b", "catalog": "https://c.example", "properties": {"prefix": "p"},
        "mode": "upsert", "key": ["a"], "delete_when": {"op": "d"}, "columns": {"a": "string"},
        "attributes": {"t": "time"}}},
}  # fmt: skip
LOOKUP: Final = {"sql": {"url": {"env": "DB"}, "query": "select 1"}, "key": {"a": "a"}, "fields": {"b": "b"},
                 "types": {"b": "string"}, "miss": "default", "default": {"b": "x"}}  # fmt: skip
BASE: Final[dict[str, Any]] = {
    "pipe": "orders",
    "description": "d",
    "owner": {"webhook": "https://owner.example/", "email": "a@b.example"},
    "normalize": {"schema": {"type": "object"}, "fields": {"a": {"from": "b", "default": "x"}},
                  "mask": {"m": "drop"}},
    "enrich": {"fields": {"a": "string"}, "required": ["a"], "lookups": {"l": LOOKUP}, "derive": {"c": "a"},
               "filter": "true"},
    "watch": [{"field": "a", "values": ["x"]}],
}  # fmt: skip
GRANTS: Final = ",".join(
    f"orders={secret}"
    for secret in ("/run/secrets", "ORDERS_KEY", "VIEW_KEY", "DB", "A", "B", "C", "O", "P", "S")
)
VIEW: Final[dict[str, Any]] = {
    "view": "orders-now",
    "description": "d",
    "from": {"pipe": "orders"},
    "key": ["a"],
    "fields": {"a": "text"},
    "order": "time",
    "serve": {"keys": [{"env": "VIEW_KEY"}]},
}


MODELS: Final[Mapping[str, type[BaseModel]]] = {"pipe": Pipe, "view": View}
ANY: Final = frozenset(HOSTILE)
LINES: Final = ANY - {"control character"}
LINE: Final = LINES - {"${…}", "file:", "line break"}
WORD: Final = LINE - {"$ref", "path traversal"}
MASKED: Final = (WORD | {"$ref"}) - {"IPv4 in IPv6"}  # a path of a mask has no colons in brackets
NAME: Final = frozenset({"private host", "metadata host", "class"})
REBOUND: Final = frozenset({"name that is bound again"})


class Row(NamedTuple):
    """The path of a hostile value in a declaration.

    Attributes:
        path: in the pipe or view.
        as_value: the value at the path, of the hostile text.
        source: of the pipe.
        destination: of the pipe.
        declaration: which of `MODELS` has the path; views are of the pipe.
    """

    path: tuple[str | int, ...]
    as_value: Callable[[str], Any] = str
    source: str = "http"
    destination: str = "http"
    declaration: str = "pipe"


def _view(path: tuple[str | int, ...], as_value: Callable[[str], Any] = str) -> Row:
    return Row(path, as_value, declaration="view")


def _key(value: Any) -> Callable[[str], Any]:
    return lambda text: {text: value}


def _value(name: str) -> Callable[[str], Any]:
    return lambda text: {name: text}


def _one_element(text: str) -> list[str]:
    return [text]


D: Final = ("destinations", 0)
S: Final = (*D, "settings")
E: Final = ("enrich",)
L: Final = (*E, "lookups", "l")
ROWS: Final[Mapping[str, tuple[Row, ...]]] = {
    "Pipe.pipe": (Row(("pipe",)),),
    "Pipe.description": (Row(("description",)),),
    "View.view": (_view(("view",)),),
    "View.description": (_view(("description",)),),
    "View.key": (_view(("key",), _one_element),),
    "View.fields": (_view(("fields",), _key("text")),),
    "ViewAccess.origins": (_view(("serve", "origins"), _one_element),),
    "ViewSource.pipe": (_view(("from", "pipe")),),
    "Owner.webhook": (Row(("owner", "webhook")),),
    "Owner.email": (Row(("owner", "email")),),
    "HttpSource.type": (Row(("source", "type")),),
    "HttpSource.id": (Row(("source", "id")),),
    "HttpSource.time": (Row(("source", "time")),),
    "HttpSource.partition_key": (Row(("source", "partition_key")),),
    "WriteKey.env": (Row(("source", "keys", 0, "env")),),
    "WriteKey.file": (Row(("source", "keys", 0), _value("file")),),
    "WriteKey.vault": (Row(("source", "keys", 0), _value("vault")),),
    "HashedKey.sha256": (
        Row(("source", "keys", 0), _value("sha256")),
        _view(("serve", "keys", 0), _value("sha256")),
    ),
    "HashedKey.env": (_view(("serve", "keys", 0, "env")),),
    "HashedKey.file": (_view(("serve", "keys", 0), _value("file")),),
    "HashedKey.vault": (_view(("serve", "keys", 0), _value("vault")),),
    "Secret.env": (Row((*D, "signing", "env")),),
    "Secret.file": (Row((*D, "signing"), _value("file")),),
    "Secret.vault": (Row((*D, "signing"), _value("vault")),),
    "HeaderSecret.env": (Row((*D, "headers", "x-a"), _value("env")),),
    "HeaderSecret.file": (Row((*D, "headers", "x-a"), _value("file")),),
    "HeaderSecret.vault": (Row((*D, "headers", "x-a"), _value("vault")),),
    "HeaderSecret.prefix": (Row((*D, "headers", "x-a"), lambda text: {"env": "A", "prefix": text}),),
    "SourceMask.data": (Row(("source", "mask", "data"), _key("drop")),),
    "SourceMask.attributes": (Row(("source", "mask", "attributes"), _key({"hash": {"env": "A"}})),),
    "TopicSource.bootstrap": (Row(("source", "bootstrap"), source="kafka"),),
    "TopicSource.topic": (Row(("source", "topic"), source="kafka"),),
    "KafkaSource.type": (Row(("source", "type"), source="kafka"),),
    "KafkaSource.deleted_type": (Row(("source", "deleted_type"), source="kafka"),),
    "KafkaSource.partition_key": (Row(("source", "partition_key"), source="kafka"),),
    "KafkaSecurity.user": tuple(
        Row((*path, "security", "user"), source=source, destination=destination)
        for path, source, destination in ((("source",), "kafka", "http"), (S, "http", "kafka"))
    ),
    "KafkaSecurity.password_file": (Row(("source", "security", "password_file"), source="kafka"),),
    "KafkaSecurity.token_url": tuple(
        Row((*path, "security"), lambda text: TOKENS | {"token_url": text}, source, destination)
        for path, source, destination in ((("source",), "kafka", "http"), (S, "http", "kafka"))
    ),
    "KafkaSecurity.token_scope": (
        Row(("source", "security"), lambda text: TOKENS | {"token_scope": text}, "kafka"),
    ),
    "KafkaSecurity.ca_file": (
        Row(("source", "security"), lambda text: CERTIFICATE | {"ca_file": text}, "kafka"),
    ),
    "KafkaSecurity.certificate_file": (
        Row(("source", "security"), lambda text: CERTIFICATE | {"certificate_file": text}, "kafka"),
    ),
    "KafkaSecurity.key_file": (
        Row(("source", "security"), lambda text: CERTIFICATE | {"key_file": text}, "kafka"),
    ),
    "SchemaRegistrySettings.url": (
        Row(("source", "registry", "url"), source="kafka"),
        Row((*S, "avro", "registry", "url"), destination="kafka"),
    ),
    "SchemaRegistrySettings.user": (Row(("source", "registry", "user"), source="kafka"),),
    "SchemaRegistrySettings.password_file": (Row(("source", "registry", "password_file"), source="kafka"),),
    "SchemaRegistrySettings.ca_file": (Row(("source", "registry", "ca_file"), source="kafka"),),
    "DebeziumSource.connect": (Row(("source", "connect"), source="debezium"),),
    "DebeziumSource.tables": (Row(("source", "tables"), _one_element, "debezium"),),
    "DebeziumSource.type": (Row(("source", "type"), source="debezium"),),
    "DebeziumSource.settings": (
        Row(("source", "settings"), _key("1"), "debezium"),
        Row(("source", "settings"), _value("snapshot.mode"), "debezium"),
    ),
    **{
        f"{model}.{field}": (Row(("source", "database", field), source=source),)
        for model, source in (("SourceDatabase", "debezium"), ("PolledDatabase", "sql"))
        for field in ("host", "name", "user", "password_file")
    },
    "SqlSource.table": (Row(("source", "table"), source="sql"),),
    "SqlSource.query": (Row(("source", "query"), source="query"),),
    "SqlSource.column": (Row(("source", "column"), source="sql"),),
    "SqlSource.key": (Row(("source", "key"), _one_element, "sql"),),
    "SqlSource.partition_key": (Row(("source", "partition_key"), source="sql"),),
    "SqlSource.type": (Row(("source", "type"), source="sql"),),
    **{
        f"ObjectsSource.{field}": (Row(("source", field), source="folder"),)
        for field in ("folder", "pattern", "delimiter", "partition_key", "type")
    },
    "StepSource.from": (Row(("source", "from"), source="step"),),
    "StepSource.where": (Row(("source", "where"), source="step"),),
    "StepSource.key": (Row(("source", "key"), _key("string"), "step"),),
    "StepSource.fields": (
        Row(("source", "fields"), _key("count(*)"), "step"),
        Row(("source", "fields"), _value("n"), "step"),
        Row(("source", "fields"), _value("n"), "join"),
        Row(("source", "fields"), lambda text: {"n": f"max({text})"}, "step"),
    ),
    "StepSource.type": (Row(("source", "type"), source="step"),),
    "StepJoin.with": (Row(("source", "join", "with"), source="join"),),
    "StepJoin.where": (Row(("source", "join", "where"), source="join"),),
    "StepJoin.fields": (
        Row(("source", "join", "fields"), _key("a"), "join"),
        Row(("source", "join", "fields"), _value("m"), "join"),
    ),
    **{
        f"S3Settings.{field}": (
            Row(("source", "s3", field), source="bucket"),
            Row((*S, "s3", field), destination="bucket"),
        )
        for field in ("bucket", "prefix", "endpoint", "region")
    },
    "Normalize.schema": (
        Row(("normalize", "schema")),
        Row(("normalize", "schema"), _value("$ref")),
        Row(("normalize", "schema"), _value("$schema")),
        Row(("normalize", "schema"), lambda text: {"properties": {"a": {"$dynamicRef": text}}}),
        Row(("normalize", "schema"), _value("title")),
    ),
    "Normalize.function": (Row(("normalize",), _value("function")),),
    "Normalize.fields": (
        Row(("normalize", "fields"), _key("a")),
        Row(("normalize", "fields"), _value("a")),
    ),
    "Normalize.mask": (Row(("normalize", "mask"), _key("drop")),),
    "MapRule.from": (Row(("normalize", "fields", "a", "from")),),
    "MapRule.default": (Row(("normalize", "fields", "a", "default")),),
    "TimeRule.format": (Row(("normalize", "fields", "a"), lambda text: {"time": {"format": text}}),),
    "TimeRule.zone": (Row(("normalize", "fields", "a"), lambda text: {"time": {"zone": text}}),),
    "Enrich.fields": (Row((*E, "fields"), lambda text: {"a": "string", text: "string"}),),
    "Enrich.required": (Row((*E, "required"), _one_element),),
    "Enrich.lookups": (Row((*E, "lookups"), _key(LOOKUP)),),
    "Enrich.derive": (Row((*E, "derive"), _key("a")), Row((*E, "derive"), _value("c"))),
    "Enrich.filter": (Row((*E, "filter")),),
    "DerivedField.sql": (Row((*E, "derive", "c"), _value("sql")),),
    "Lookup.file": (
        Row(L, lambda text: {"file": text, "key": {"a": "a"}, "fields": {"b": "b"}}),
        Row(L, lambda text: {"file": f"{text}.csv", "key": {"a": "a"}, "fields": {"b": "b"}}),
    ),
    "Lookup.key": (Row((*L, "key"), _key("a")), Row((*L, "key"), _value("a"))),
    "Lookup.fields": (
        Row((*L, "fields"), lambda text: {"b": "b", text: "b"}),
        Row((*L, "fields"), _value("b")),
    ),
    "Lookup.types": (Row((*L, "types"), _key("string")),),
    "Lookup.default": (Row((*L, "default"), _value("b")),),
    "SqlTable.query": (Row((*L, "sql", "query")),),
    "Udf.function": (
        Row((*E, "udf"), lambda text: {"function": text, "args": ["a"], "returns": {"u": "int"}}),
    ),
    "Udf.args": (
        Row((*E, "udf"), lambda text: {"function": "m:f", "args": [text], "returns": {"u": "int"}}),
    ),
    "Udf.returns": (
        Row((*E, "udf"), lambda text: {"function": "m:f", "args": ["a"], "returns": {text: "int"}}),
    ),
    "Destination.kind": (Row((*D, "kind")),),
    "Destination.name": (Row((*D, "name")),),
    "Destination.when": (Row((*D, "when")),),
    "Destination.transform": (Row((*D, "transform")),),
    "HttpDestination.url": (Row((*D, "url")),),
    "HttpDestination.headers": (Row((*D, "headers"), _key("b")), Row((*D, "headers"), _value("x-a"))),
    "HttpProxy.url": (Row((*D, "proxy", "url")),),
    "HttpProxy.user": (Row((*D, "proxy", "user")),),
    "HttpOauth.token_url": (Row((*D, "oauth", "token_url")),),
    "HttpOauth.client_id": (Row((*D, "oauth", "client_id")),),
    "HttpOauth.scope": (Row((*D, "oauth", "scope")),),
    "ConnectorDestination.kind": (Row((*D, "kind"), destination="postgres"),),
    "ConnectorDestination.settings": (Row(S, _value("unknown"), destination="postgres"),),
    "WatchedField.field": (Row(("watch", 0, "field")),),
    "WatchedField.values": (Row(("watch", 0, "values"), _one_element),),
    "KafkaDestinationSettings.bootstrap": (Row((*S, "bootstrap"), destination="kafka"),),
    "KafkaDestinationSettings.topic": (Row((*S, "topic"), destination="kafka"),),
    "KafkaDestinationSettings.key_attribute": (Row((*S, "key_attribute"), destination="kafka"),),
    "KafkaDestinationSettings.headers": (
        Row((*S, "headers"), _key("b"), destination="kafka"),
        Row((*S, "headers"), _value("a"), destination="kafka"),
    ),
    "KafkaDestinationSettings.positions_topic": (Row((*S, "positions_topic"), destination="kafka"),),
    "AvroSettings.subject": (Row((*S, "avro", "subject"), destination="kafka"),),
    "AvroSettings.schema": (
        Row((*S, "avro", "schema"), destination="kafka"),
        Row((*S, "avro", "schema"), lambda text: {"type": text, "name": "r"}, destination="kafka"),
    ),
    **{
        f"PostgresSettings.{field}": (Row((*S, field), destination="postgres"),)
        for field in (
            "table",
            "tombstones",
            "unchanged_column",
            "log_column",
            "accepted_column",
            "partition_column",
            "offset_column",
        )
    },
    "PostgresSettings.columns": (
        Row((*S, "columns"), lambda text: {"a": "b", text: "c"}, destination="postgres"),
        Row((*S, "columns"), _value("a"), destination="postgres"),
    ),
    "PostgresSettings.attributes": (
        Row((*S, "attributes"), _key("time"), destination="postgres"),
        Row((*S, "attributes"), _value("t"), destination="postgres"),
    ),
    "PostgresSettings.types": (
        Row((*S, "types"), _key("text"), destination="postgres"),
        Row((*S, "types"), _value("a"), destination="postgres"),
    ),
    "PostgresSettings.key": (Row((*S, "key"), _one_element, destination="postgres"),),
    "PostgresSettings.delete_when": (
        Row((*S, "delete_when"), _key("d"), destination="postgres"),
        Row((*S, "delete_when"), _value("op"), destination="postgres"),
    ),
    "ObjectsSettings.folder": (Row((*S, "folder"), destination="folder"),),
    "ObjectsSettings.columns": (Row((*S, "columns"), _key({"path": "b"}), destination="folder"),),
    "ObjectColumn.path": (Row((*S, "columns", "a", "path"), destination="folder"),),
    "IcebergSettings.warehouse": (
        Row((*S, "warehouse"), destination="iceberg"),
        Row((*S, "warehouse"), lambda text: f"s3://{text}", destination="iceberg"),
    ),
    "IcebergSettings.table": (Row((*S, "table"), destination="iceberg"),),
    "IcebergSettings.catalog": (Row((*S, "catalog"), destination="iceberg"),),
    "IcebergSettings.properties": (
        Row((*S, "properties"), _key("x"), destination="iceberg"),
        *(
            Row((*S, "properties"), _value(name), destination="iceberg")
            for name in ("token", "s3.endpoint", "oauth2-server-uri", "prefix", "client.region")
        ),
    ),
    "IcebergSettings.key": (Row((*S, "key"), _one_element, destination="iceberg"),),
    "IcebergSettings.delete_when": (
        Row((*S, "delete_when"), _key("d"), destination="iceberg"),
        Row((*S, "delete_when"), _value("op"), destination="iceberg"),
    ),
    "IcebergSettings.columns": (Row((*S, "columns"), _key("string"), destination="iceberg"),),
    "IcebergSettings.attributes": (
        Row((*S, "attributes"), _key("time"), destination="iceberg"),
        Row((*S, "attributes"), _value("t"), destination="iceberg"),
    ),
}
"""Model and field to the places where the values are put."""


ATTRIBUTE: Final = "becomes an attribute of events, which is written and compared"
DATA: Final = "is data: it is written or compared with events"
IN_DATA: Final = "names a field of the data of events"
LOGIN: Final = "is sent to the declared server as a user, scope, realm or secret of its protocol"
RESOLVED: Final = (
    "names are judged by the address to which a connection is made (tests/libs/runtime/test_egress.py)"
)
IN_TABLE: Final = "names a column of the lookup's own table"
OWN_SQL: Final = "is run by the database of the secret URL, with the rights of its user"
IN_SERVER: Final = "names a topic, bucket, database, subject or path within the declared server"
PATTERN: Final = "is compared with the paths that a listing of the folder or bucket gives"
INERT: Final[Mapping[str, tuple[frozenset[str], str] | tuple[tuple[frozenset[str], str], ...]]] = {
    **{f"{model}.description": (LINES, "is shown to readers, escaped") for model in ("Pipe", "View")},
    **{f"{kind}Source.type": (LINE, ATTRIBUTE) for kind in ("Http", "Kafka", "Debezium", "Sql", "Objects", "Step")},
    "KafkaSource.deleted_type": (LINE, ATTRIBUTE),
    **{f"HttpSource.{field}": (WORD, IN_DATA) for field in ("id", "time", "partition_key")},
    **{f"{kind}.partition_key": (WORD, IN_DATA) for kind in ("KafkaSource", "ObjectsSource")},
    "ViewAccess.origins": (
        REBOUND | {"private URL", "metadata in decimal"}, "is compared with the header Origin; nothing connects to it"
    ),
    "HeaderSecret.prefix": (LINE, DATA),
    "SourceMask.data": (MASKED, IN_DATA),
    "Normalize.mask": (MASKED, IN_DATA),
    "Normalize.fields": ((WORD, IN_DATA), (WORD, IN_DATA)),
    "MapRule.from": (WORD, IN_DATA),
    "MapRule.default": (ANY, DATA),
    "TimeRule.format": (LINE, "is a pattern of strptime"),
    "Normalize.schema": (
        (frozenset(), ""), (frozenset(), ""), (frozenset(), ""), (frozenset(), ""),
        (ANY, "a title is a note for readers"),
    ),
    "Owner.webhook": (REBOUND, RESOLVED),
    "HttpDestination.url": (REBOUND, RESOLVED),
    "HttpOauth.token_url": (REBOUND, RESOLVED),
    "HttpOauth.client_id": (LINE, LOGIN),
    "HttpOauth.scope": (LINE, LOGIN),
    "HttpProxy.user": (frozenset(text for text in LINE if ":" not in HOSTILE[text]), LOGIN),
    "KafkaSecurity.token_url": ((REBOUND, RESOLVED), (REBOUND, RESOLVED)),
    "SchemaRegistrySettings.url": ((REBOUND, RESOLVED), (REBOUND, RESOLVED)),
    "S3Settings.endpoint": ((REBOUND, RESOLVED), (REBOUND, RESOLVED)),
    "IcebergSettings.catalog": (REBOUND, RESOLVED),
    **{f"{model}.host": (frozenset({"class"}), RESOLVED) for model in ("SourceDatabase", "PolledDatabase")},
    **{f"{model}.name": (NAME, IN_SERVER) for model in ("SourceDatabase", "PolledDatabase")},
    **{f"{model}.user": (LINE, LOGIN) for model in ("SourceDatabase", "PolledDatabase", "SchemaRegistrySettings")},
    "KafkaSecurity.user": ((LINE, LOGIN), (LINE, LOGIN)),
    "KafkaSecurity.token_scope": (LINE, LOGIN),
    "TopicSource.topic": (NAME, IN_SERVER),
    "KafkaDestinationSettings.topic": (NAME, IN_SERVER),
    "KafkaDestinationSettings.positions_topic": (NAME, IN_SERVER),
    "KafkaDestinationSettings.key_attribute": (LINE, "names an attribute of events"),
    "KafkaDestinationSettings.headers": ((LINE, DATA), (LINE, DATA)),
    "AvroSettings.subject": (LINE, IN_SERVER),
    "SqlSource.query": (LINES, OWN_SQL),
    "SqlTable.query": (LINES, OWN_SQL),
    "ObjectsSource.pattern": (LINE, PATTERN),
    "S3Settings.bucket": ((NAME, IN_SERVER), (NAME, IN_SERVER)),
    "S3Settings.prefix": ((NAME, IN_SERVER), (NAME, IN_SERVER)),
    "Lookup.key": ((frozenset(), ""), (LINE, IN_TABLE)),
    "Lookup.fields": ((frozenset(), ""), (LINE, IN_TABLE)),
    "Lookup.types": (LINE, IN_TABLE),
    "Lookup.default": (ANY, DATA),
    "Destination.transform": (frozenset({"class", "$ref"}), "JMESPath has no access to anything but the event"),
    "HttpDestination.headers": ((NAME, DATA), (LINE, DATA)),
    "WatchedField.values": (ANY, DATA),
    "PostgresSettings.columns": ((frozenset(), ""), (WORD, IN_DATA)),
    "PostgresSettings.attributes": ((frozenset(), ""), (LINE, "names an attribute of events")),
    "PostgresSettings.delete_when": ((WORD | {"${…}", "file:", "control character"}, IN_DATA), (ANY, DATA)),
    "ObjectColumn.path": (WORD, IN_DATA),
    "IcebergSettings.table": (frozenset({"class"}), IN_SERVER),
    "IcebergSettings.properties": (
        (frozenset(), ""),
        (LINE, LOGIN),
        (REBOUND | {"class"}, RESOLVED),
        (REBOUND, RESOLVED),
        (NAME, IN_SERVER),
        (frozenset(), ""),
    ),
    "IcebergSettings.delete_when": ((NAME, IN_DATA), (ANY, DATA)),
}  # fmt: skip
"""Field to the values that the check lets pass, for each of its rows, and why they do no harm."""
SQL: Final = frozenset(
    {
        "Enrich.derive",
        "Enrich.filter",
        "DerivedField.sql",
        "Destination.when",
        "StepSource.where",
        "StepSource.fields",
        "StepJoin.where",
        "StepJoin.fields",
    }
)
"""Fields that Spark judges, in `test_hostile_sql_is_refused_or_inert`."""
CODE_IN_SQL: Final = frozenset({"IDENTIFIER", "class", "${…}", "metadata host"})
"""Hostile values that Spark could take for code; the others are tried in the second tier."""
OTHER_RULES: Final[Mapping[str, str]] = {
    **dict.fromkeys(
        ("Backfill.after", "Backfill.rate", "BatchPolicy.wait", "BreakerPolicy.probe", "Destination.timeout",
         "ConnectorDestination.timeout", "Destination.rate", "Lookup.expire", "Lookup.refresh",
         "ObjectsSource.interval",
         "ObjectsSource.settle", "Quota.bytes", "Quota.events", "RetryPolicy.max_age", "RetryPolicy.max_pause",
         "Slo.p95", "Timely.within", "HttpDestination.watermark", "SqlSource.interval",
         "SqlSource.settle", "StepSource.lateness", "StepWindow.tumbling", "StepWindow.size", "StepWindow.every",
         "StepWindow.session", "StepEach.trailing", "StepSource.first", "StepJoin.within",
         "View.keep"),
        "a number, or a duration or rate that is read as one",
    ),
    "CollectedSource.kind": "the name of an installed kind; another one is refused by the check",
    "AvroSettings.registry": "SchemaRegistrySettings has rows of its own",
    "KafkaSource.registry": "SchemaRegistrySettings has rows of its own",
}  # fmt: skip


def _is_text(field: FieldInfo) -> bool:
    kind = str(declared_type(field))
    return (
        any(name in kind for name in ("str", "Path", "Url", "Any"))
        and "Literal[" not in kind.partition("str")[0]
    )


def _is_path(field: FieldInfo) -> bool:
    return "pathlib" in str(declared_type(field))


PATHS_IN_TEXT: Final = frozenset({"IcebergSettings.warehouse", "IcebergSettings.catalog"})
"""Fields that are paths in some forms only."""


def _text_fields(is_chosen: Callable[[FieldInfo], bool] = _is_text) -> Iterator[str]:
    seen_paths: set[str] = set()
    roots: list[type[BaseModel]] = [Pipe, View, *declarations(), *_settings_of_kinds()]
    for root in roots:
        for model in models(root):
            for name, field in model.model_fields.items():
                owner = next(
                    base for base in reversed(model.__mro__) if name in getattr(base, "model_fields", ())
                )
                field_path = f"{_declaring(owner, model, name).__name__}.{field.alias or name}"
                if is_chosen(field) and field_path not in seen_paths:
                    seen_paths.add(field_path)
                    yield field_path


def _declaring(owner: type[BaseModel], model: type[BaseModel], name: str) -> type[BaseModel]:
    """The class whose declaration of a field holds: the last one that annotates it."""
    return next((base for base in model.__mro__ if name in inspect.get_annotations(base)), owner)


def _declared(row: Row, text: str) -> dict[str, Any]:
    pipe = copy.deepcopy(BASE)
    pipe["source"] = copy.deepcopy(SOURCES[row.source])
    pipe["destinations"] = [copy.deepcopy(DESTINATIONS[row.destination])]
    declared = {"pipe": pipe, "view": copy.deepcopy(VIEW)}
    if row.source in ("step", "join"):
        declared["flights"] = copy.deepcopy(FLIGHTS)
        declared["trains"] = copy.deepcopy(TRAINS)
    node: Any = declared[row.declaration]
    for step in row.path[:-1]:
        node = node[step]
    node[row.path[-1]] = row.as_value(text)
    return declared


def _problems(folder: Path, declared: dict[str, Any]) -> list[tuple[int, str, str]]:
    for name, content in declared.items():
        (folder / f"{name}.yaml").write_text(json.dumps(content, indent=1))
    _, problems = check_folder(folder, "micro-batch", sql=False)
    return [(problem.line, problem.where, problem.message) for problem in problems]


def _inert(field_path: str, number: int) -> tuple[frozenset[str], str]:
    reasons: Any = INERT.get(field_path, (frozenset(), ""))
    reason: tuple[frozenset[str], str] = reasons[number] if isinstance(reasons[0], tuple) else reasons
    return reason


@pytest.fixture(autouse=True)
def limits(monkeypatch: pytest.MonkeyPatch) -> None:
    """The limits of an operator who allows nothing but some folders."""
    for name, value in {
        "HIFI_EGRESS_ALLOW": "",
        "HIFI_PIPES_SECRET_FOLDERS": "/run/secrets",
        "HIFI_PIPES_SECRET_GRANTS": GRANTS,
        "HIFI_PIPES_LOOKUP_FOLDERS": "/pipes",
        "HIFI_PIPES_OBJECT_FOLDERS": "/objects",
        "HIFI_PIPES_SOURCE_FOLDERS": "/sources",
        "HIFI_PIPES_LAKE_WAREHOUSES": "s3://b/w",
    }.items():
        monkeypatch.setenv(name, value)


def test_each_text_of_the_pipe_schema_has_a_row() -> None:
    fields = set(_text_fields())
    assert fields - ROWS.keys() - OTHER_RULES.keys() == set()
    assert OTHER_RULES.keys() - fields == set()
    assert INERT.keys() - ROWS.keys() == set()
    inherited = {
        f"{kind}.{secret_source}"
        for kind in ("WriteKey", "HashedKey", "HeaderSecret")
        for secret_source in ("env", "file", "vault")
    }
    assert ROWS.keys() - fields == inherited


def test_the_pipes_without_hostile_values_pass(tmp_path: Path) -> None:
    for source in SOURCES:
        assert _problems(tmp_path, _declared(Row(("description",), source=source), "x")) == [], source
    for destination in DESTINATIONS:
        assert _problems(tmp_path, _declared(Row(("description",), destination=destination), "x")) == [], (
            destination
        )


@pytest.mark.parametrize("field_path", sorted(ROWS))
def test_a_hostile_text_is_refused_with_its_line_or_inert(tmp_path: Path, field_path: str) -> None:
    for number, row in enumerate(ROWS[field_path]):
        passed_kinds, is_line_checked = set(), False
        for kind, text in HOSTILE.items():
            declared = _declared(row, text)
            try:
                MODELS[row.declaration].model_validate(declared[row.declaration])
            except ValidationError:
                if is_line_checked:
                    continue  # refused, and its line is the same for all
            problems = _problems(tmp_path, declared)
            if not problems:
                passed_kinds.add(kind)
                continue
            is_line_checked = True
            line, key_path, message = problems[0]
            assert line > 1 or row.path == (row.declaration,), (kind, problems)
            assert len(message) >= len("is missing"), (kind, key_path)
        inert, reason = _inert(field_path, number)
        if field_path in SQL:
            assert passed_kinds <= LINES, (field_path, number)
            continue
        assert passed_kinds == inert, (field_path, number)
        assert not passed_kinds or reason


INHERITED: Final = frozenset(f"{kind}.file" for kind in ("WriteKey", "HashedKey", "HeaderSecret"))
PATHS: Final = sorted({*_text_fields(_is_path), *PATHS_IN_TEXT, *INHERITED})


def test_the_fields_that_name_files_are_found() -> None:
    assert {"Secret.file", "Lookup.file", "Normalize.schema", "KafkaSecurity.ca_file"} < set(PATHS)
    assert {field_path for field_path in ROWS if field_path.endswith(("_file", ".file", ".folder"))} <= set(
        PATHS
    )


@pytest.mark.parametrize("field_path", PATHS)
def test_no_answer_tells_whether_a_file_exists(tmp_path: Path, field_path: str) -> None:
    pipes, other_folder = tmp_path / "pipes", tmp_path / "elsewhere"
    for folder in (pipes, other_folder, other_folder / "x-full"):
        folder.mkdir()
    for name in ("x-text", "x-text.csv", "x-full/text"):
        (other_folder / name).write_text("id,name\n")
    (other_folder / "x-dark").write_text("")
    (other_folder / "x-dark").chmod(0)
    (other_folder / "x-link").symlink_to("/etc/passwd")
    (other_folder / "x-loop").symlink_to("x-loop")
    is_schema = field_path == "Normalize.schema"  # only its first row is a path, from the pipe's folder
    for row in ROWS[field_path][: 1 if is_schema else None]:
        answers: dict[str, list[tuple[int, str, str]]] = {}
        for name in ("x-gone", "x-text", "x-full", "x-dark", "x-link", "x-loop"):
            declared = _declared(row, f"../elsewhere/{name}" if is_schema else str(other_folder / name))
            answers[name] = [
                (line, key_path, message.replace(name, "NAME").replace(str(pipes), ""))
                for line, key_path, message in _problems(pipes, declared)
            ]
        assert answers["x-gone"], (field_path, row.path)
        assert all(answer == answers["x-gone"] for answer in answers.values()), answers


@pytest.fixture(scope="module")
def catalyst() -> Iterator[Catalyst]:
    """As `hifi check` has it."""
    with local_spark() as spark:
        spark.sparkContext.setLogLevel("OFF")
        yield Catalyst(spark)


@pytest.mark.timeout(900)  # all take 25 s alone, and ten times that beside five other groups
@pytest.mark.parametrize(
    "kinds", [CODE_IN_SQL, pytest.param(ANY - CODE_IN_SQL, marks=pytest.mark.more)], ids=["code", "others"]
)
def test_hostile_sql_is_refused_or_inert(catalyst: Catalyst, kinds: frozenset[str]) -> None:
    passed_texts = {}
    for field_path in sorted(SQL):
        row = ROWS[field_path][-1]
        for kind in sorted(kinds):
            text = HOSTILE[kind]
            try:
                pipe = Pipe.model_validate(_declared(row, text)["pipe"])
            except ValidationError:
                continue
            problems: list[Any] = list(check_pipe(catalyst, pipe, "micro-batch"))
            if isinstance(pipe.source, StepSource):
                read_pipes = [Pipe.model_validate(FLIGHTS)] * len(pipe.source.inputs)
                problems += step_problems(catalyst, pipe.source, *read_pipes)
            if not problems:
                passed_texts[field_path, kind] = text
    assert passed_texts == {}
