"""Which topic a name stands for: the ids of its cluster and of the topic itself (KIP-516).

A topic that is deleted and created again has another id. aiokafka's metadata requests are older than these ids, so this
module has one of version 12, which Kafka knows since 3.1.
"""

from io import BytesIO
from typing import Final, NamedTuple

from aiokafka.errors import for_code
from aiokafka.protocol.api import Request, RequestStruct, Response
from aiokafka.protocol.types import (
    AbstractType,
    Boolean,
    CompactArray,
    CompactString,
    Int16,
    Int32,
    Schema,
    TaggedFields,
)

from hifi.kafka.clients import started_admin
from hifi.kafka.security import KafkaSecurity

_CLIENT_ID: Final = "hifi-topic-identity"
_UUID_BYTES: Final = 16
_NO_ID: Final = bytes(_UUID_BYTES)


class TopicIdentity(NamedTuple):
    """The ids that a topic keeps until it is deleted."""

    cluster: str
    topic: str
    """32 hex digits; empty: the brokers are older than Kafka 3.1."""


class _Uuid(AbstractType[bytes]):  # type: ignore[misc]
    @classmethod
    def encode(cls, value: bytes) -> bytes:
        return value

    @classmethod
    def decode(cls, data: BytesIO) -> bytes:
        return data.read(_UUID_BYTES)


_TEXT: Final = CompactString("utf-8")
_PARTITION: Final = (
    ("error_code", Int16),
    ("partition", Int32),
    ("leader", Int32),
    ("leader_epoch", Int32),
    ("replicas", CompactArray(Int32)),
    ("isr", CompactArray(Int32)),
    ("offline_replicas", CompactArray(Int32)),
    ("tags", TaggedFields),
)


class _MetadataResponse(Response):  # type: ignore[misc]
    API_KEY = 3
    API_VERSION = 12
    SCHEMA = Schema(
        ("throttle_time_ms", Int32),
        (
            "brokers",
            CompactArray(
                ("node_id", Int32), ("host", _TEXT), ("port", Int32), ("rack", _TEXT), ("tags", TaggedFields)
            ),
        ),
        ("cluster_id", _TEXT),
        ("controller_id", Int32),
        (
            "topics",
            CompactArray(
                ("error_code", Int16),
                ("topic", _TEXT),
                ("topic_id", _Uuid),
                ("is_internal", Boolean),
                ("partitions", CompactArray(*_PARTITION)),
                ("authorized_operations", Int32),
                ("tags", TaggedFields),
            ),
        ),
        ("tags", TaggedFields),
    )


class _MetadataRequestStruct(RequestStruct):  # type: ignore[misc]
    FLEXIBLE_VERSION = True
    API_KEY = 3
    API_VERSION = 12
    RESPONSE_TYPE = _MetadataResponse
    SCHEMA = Schema(
        ("topics", CompactArray(("topic_id", _Uuid), ("topic", _TEXT), ("tags", TaggedFields))),
        ("allow_auto_topic_creation", Boolean),
        ("include_authorized_operations", Boolean),
        ("tags", TaggedFields),
    )


class _MetadataRequest(Request[_MetadataRequestStruct]):  # type: ignore[misc]
    API_KEY = 3

    def __init__(self, topic: str) -> None:
        self._topic = topic

    def build(self, request_struct_class: type[_MetadataRequestStruct]) -> _MetadataRequestStruct:
        return request_struct_class([(_NO_ID, self._topic, {})], False, False, {})


async def topic_identity(
    bootstrap: str, topic: str, security: KafkaSecurity | None = None, pipe: str | None = None
) -> TopicIdentity:
    """Ask for the ids of a topic.

    Args:
        bootstrap: `HOST:PORT,…`.
        topic: its name.
        security: of the connection; None: that of the bootstrap servers.
        pipe: that declares the security; see `client_options`.

    Raises:
        aiokafka.errors.KafkaError, OSError: no broker answers, there is no such topic, or it may not be read.
    """
    async with started_admin(bootstrap, _CLIENT_ID, security=security, pipe=pipe) as admin:
        try:
            answer = await admin._send_request(_MetadataRequest(topic))  # noqa: SLF001 - it has no public way
        except NotImplementedError:  # no broker speaks this version
            return TopicIdentity(str((await admin.describe_cluster())["cluster_id"]), "")
    [metadata] = answer.to_object()["topics"]
    if metadata["error_code"]:
        raise for_code(metadata["error_code"])(f"the topic {topic}")
    return TopicIdentity(str(answer.cluster_id), metadata["topic_id"].hex())
