"""Finds what a pipe names and may not name."""

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from pydantic import BaseModel

from hifi.pipe.endpoints import destination_endpoints, owner_endpoints, source_endpoints
from hifi.pipe.lake_catalog import catalog_refusals
from hifi.pipe.limits import PipeLimits, pipe_limits
from hifi.pipe.mask import KeyedHash, Mask, covers
from hifi.pipe.model import ConnectorDestination, Destination, Pipe
from hifi.pipe.named_secrets import YamlPath, secrets
from hifi.pipe.reader import reader
from hifi.pipe.sent_paths import sent_paths
from hifi.pipe.source import HttpSource
from hifi.pipe.sources.collected import CollectedSource
from hifi.pipe.sources.topic import TopicSource
from hifi.runtime.egress import EgressKind, egress
from hifi.runtime.errors import Misconfigured

_TOPICS: Final = ("topic", "positions_topic")
"""Settings of destinations that name Kafka topics."""
_MASK_AT_INGEST: Final = ", or mask `partitionkey` in `source.mask.attributes`"
_CREDENTIALS: Final = ("password_file", "key_file")
_CERTIFICATES: Final = ("ca_file", "certificate_file")
"""Settings that name files of credentials, and of certificates and authorities."""


def refusals(pipe: Pipe, limits: PipeLimits) -> Iterator[tuple[YamlPath, str]]:
    """Path in the pipe's YAML and reason of each secret, file, catalog setting, host and mask that is refused."""
    yield from _refused_hosts(pipe.pipe, owner_endpoints(pipe))
    yield from source_refusals(pipe.pipe, pipe.source, limits)
    yield from normalize_refusals(pipe, limits)
    yield from _masks_of_identifiers(pipe)
    yield from enrich_refusals(pipe, limits)
    for index, destination in enumerate(pipe.destinations):
        for path, reason in destination_refusals(pipe.pipe, destination, limits):
            yield ("destinations", index, *path), reason


def source_refusals(
    pipe: str, source: HttpSource | CollectedSource, limits: PipeLimits
) -> Iterator[tuple[YamlPath, str]]:
    """As `refusals`, of the source of a pipe."""
    yield from _refused_hosts(pipe, source_endpoints(source))
    yield from _refused_secrets(pipe, source, ("source",), limits)
    if isinstance(source, TopicSource) and (
        reason := limits.refuse_topic(source.topic, has_connector=bool(source.written_topics))
    ):
        yield ("source", "topic"), reason


def normalize_refusals(pipe: Pipe, limits: PipeLimits) -> Iterator[tuple[YamlPath, str]]:
    """As `refusals`, of the section `normalize`."""
    yield from _refused_secrets(pipe.pipe, pipe.normalize, ("normalize",), limits)


def enrich_refusals(pipe: Pipe, limits: PipeLimits) -> Iterator[tuple[YamlPath, str]]:
    """As `refusals`, of the section `enrich`."""
    yield from _refused_secrets(pipe.pipe, pipe.enrich, ("enrich",), limits)
    for name, lookup in pipe.enrich.lookups.items():
        if lookup.file is not None and (reason := limits.refuse_lookup(lookup.file)):
            yield ("enrich", "lookups", name, "file"), reason


def _masks_of_identifiers(pipe: Pipe) -> Iterator[tuple[YamlPath, str]]:
    """Masks of fields whose values ingest or collect has written into ids or record keys, too.

    Ids of events over HTTP are left out: their sender chose them.
    """
    source = pipe.source
    if isinstance(source, CollectedSource):
        identifying_fields = source.identifying()
    elif source.partition_key is None or (source.mask and "partitionkey" in source.mask.attributes):
        return
    else:
        identifying_fields = [("partition_key", source.partition_key)]
    for path in pipe.normalize.mask:
        for sent_path in sent_paths(pipe.normalize, path):
            for setting, field in identifying_fields:
                if covers(field, sent_path) or covers(sent_path, field):
                    reason = (
                        f"`source.{setting}` is the field {field}, whose values are in the ids or keys of events, "
                        f"unmasked: choose another `{setting}`, or leave the mask out"
                        + _MASK_AT_INGEST
                        * (not isinstance(source, CollectedSource))
                    )
                    yield ("normalize", "mask", path), reason


def destination_refusals(
    pipe: str, destination: Destination, limits: PipeLimits
) -> Iterator[tuple[YamlPath, str]]:
    """As `refusals`, of a destination; paths begin in it.

    Args:
        pipe: name.
        destination: of the pipe.
        limits: of this process.
    """
    yield from _refused_hosts(pipe, destination_endpoints(destination))
    yield from _refused_secrets(pipe, destination, (), limits)
    if not isinstance(destination, ConnectorDestination):
        return
    for name in _TOPICS:
        topic = destination.settings.get(name)
        if isinstance(topic, str) and (reason := limits.refuse_topic(topic)):
            yield ("settings", name), reason
    if reader(destination) == "lake":
        for setting, reason in catalog_refusals(destination.settings, limits):
            yield ("settings", *setting), reason


def require_none(refused_settings: Iterable[tuple[YamlPath, str]]) -> None:
    """Check in a service that nothing of a part of a pipe is refused, before it reads or connects to anything.

    Raises:
        Misconfigured: the message lists what is refused.
    """
    if lines := [f"{'.'.join(map(str, path))}: {reason}" for path, reason in refused_settings]:
        raise Misconfigured("; ".join(lines))


def require_granted(pipe: str, node: Any) -> None:
    """Check in a service that the secrets of a part of a pipe are granted to the pipe.

    Raises:
        Misconfigured: one is not.
    """
    limits = pipe_limits()
    require_none(
        (path, reason)
        for path, secret in secrets(node)
        if (reason := secret.not_granted(pipe, limits)) is not None
    )


def _refused_hosts(
    pipe: str, hosts: Iterable[tuple[YamlPath, EgressKind, str, int]]
) -> Iterator[tuple[YamlPath, str]]:
    pipe_egress = egress(pipe)
    for path, kind, host, port in hosts:
        if reason := pipe_egress.literal_refusal(kind, host, port):
            yield path, reason


def _refused_secrets(
    pipe: str, node: Any, path: YamlPath, limits: PipeLimits
) -> Iterator[tuple[YamlPath, str]]:
    for setting_path, secret in secrets(node, path):
        reason = secret.refusal(limits) or secret.not_granted(pipe, limits)
        if reason is not None:
            yield setting_path, reason
    for setting_path, file in _named_files(node, path):
        if setting_path[-1] in _CERTIFICATES:
            reason = limits.refuse_certificates(file, pipe)
        else:
            reason = limits.refuse_secret_file(file) or limits.refuse_grant(pipe, None, file)
        if reason is not None:
            yield setting_path, reason


def _named_files(node: Any, path: YamlPath) -> Iterator[tuple[YamlPath, Path]]:
    """The files with passwords, keys and certificates that settings name by path."""
    if isinstance(node, BaseModel):
        for name, field in type(node).model_fields.items():
            yield from _named_file(field.alias or name, getattr(node, name), path)
        for name, value in (node.model_extra or {}).items():
            yield from _named_file(name, value, path)
    elif isinstance(node, dict):
        for name, value in node.items():
            yield from _named_file(str(name), value, path)
    elif isinstance(node, list | tuple):
        for index, value in enumerate(node):
            yield from _named_files(value, (*path, index))


def _named_file(name: str, value: Any, path: YamlPath) -> Iterator[tuple[YamlPath, Path]]:
    if name in (*_CREDENTIALS, *_CERTIFICATES) and isinstance(value, str | Path):
        yield (*path, name), Path(value)
    else:
        yield from _named_files(value, (*path, name))


def functions(pipe: Pipe) -> Iterator[tuple[YamlPath, str]]:
    """Path in the pipe's YAML and name of each Python function."""
    if pipe.normalize.function is not None:
        yield ("normalize", "function"), pipe.normalize.function
    if pipe.enrich.udf is not None:
        yield ("enrich", "udf", "function"), pipe.enrich.udf.function


def require_allowed(pipes: Sequence[Pipe]) -> None:
    """Refuse to publish pipes that name what a pipe may not name, or what this process's limits refuse.

    Functions are not looked for: they may be on the services' machines only. `hifi check` and each service do.

    Raises:
        Misconfigured: the message lists everything that is refused.
    """
    limits = pipe_limits()
    lines = [
        f"{pipe.pipe}: {'.'.join(map(str, path))}: {reason}"
        for pipe in pipes
        for path, reason in refusals(pipe, limits)
    ]
    if lines:
        raise Misconfigured("no pipe was published:\n  " + "\n  ".join(lines))


def require_mask_keys(
    pipes: Sequence[Pipe], published_pipes: Mapping[str, Pipe], variables: Mapping[str, str] = os.environ
) -> None:
    """Refuse to publish a version that adds or changes a mask whose key cannot be read here.

    Args:
        pipes: to publish.
        published_pipes: name to the version in force.
        variables: environment of the services; default: of this process.

    Raises:
        Misconfigured: the message lists all such masks.
    """
    lines = []
    for pipe in pipes:
        published_masks = {} if pipe.pipe not in published_pipes else dict(masks(published_pipes[pipe.pipe]))
        for path, mask in masks(pipe):
            if isinstance(mask, KeyedHash) and published_masks.get(path) != mask:
                try:
                    mask.hash.read(variables)
                except Misconfigured as error:
                    lines.append(f"{pipe.pipe}: {'.'.join(map(str, path))}: {error}")
    if lines:
        raise Misconfigured(
            "no pipe was published: the keys of new masks must be readable here, too\n  " + "\n  ".join(lines)
        )


def masks(pipe: Pipe) -> Iterator[tuple[YamlPath, Mask]]:
    """Path in the pipe's YAML and mask of each sensitive field and attribute."""
    for field, mask in pipe.normalize.mask.items():
        yield ("normalize", "mask", field), mask
    if pipe.source.mask is not None:
        for field, mask in pipe.source.mask.data.items():
            yield ("source", "mask", "data", field), mask
        for name, mask in pipe.source.mask.attributes.items():
            yield ("source", "mask", "attributes", name), mask
