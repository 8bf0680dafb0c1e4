"""When a revision cannot be used, one that masks less is not used in its place."""

from types import SimpleNamespace
from typing import Any

import pytest
from tests.support.normalize.normalize_harness import pipe

from hifi.kafka.topics import Topics
from hifi.pipe.model import Pipe
from hifi.pipe.normalize.program import NormalizeProgram, compile_pipe
from hifi.pipe.registry import PipeRegistry
from hifi.pipe.revision import PipeRevision, pipe_record
from hifi.runtime.errors import Rejected
from hifi.runtime.health import Health
from hifi_normalize import compiled_pipes
from hifi_normalize.compiled_pipes import CompiledPipes, _masks_as_much
from hifi_normalize.functions.function_runner import FunctionLimits, FunctionRunner


def _revision(mask: dict[str, Any]) -> PipeRevision:
    declaration = {
        "pipe": "people",
        "source": {"keys": [{"env": "KEY"}]},
        "normalize": {"mask": mask},
        "destinations": [{"name": "d", "url": "https://shop.example/"}],
    }
    return PipeRevision(Pipe.model_validate(declaration), 1)


HASH, OTHER_HASH = {"hash": {"env": "A"}}, {"hash": {"env": "B"}}


@pytest.mark.parametrize(
    ("kept_mask", "published_mask", "usable"),
    [
        ({"a": "drop"}, {"a": "drop"}, True),
        ({"a": "drop"}, {"a": "redact"}, True),
        ({"a": "drop"}, {"a": HASH}, True),
        ({"a": "redact"}, {"a": HASH}, True),
        ({"a": HASH}, {"a": HASH}, True),
        ({"a": "drop", "b": HASH}, {"a": "drop"}, True),
        ({"a": HASH}, {"a": "drop"}, False),
        ({"a": HASH}, {"a": "redact"}, False),
        ({"a": HASH}, {"a": OTHER_HASH}, False),
        ({"a": "redact"}, {"a": "drop"}, False),
        ({"a": "drop"}, {"a": "drop", "b": "redact"}, False),
        ({}, {"a": HASH}, False),
    ],
)
def test_a_weaker_mask_is_not_kept_in_use(
    kept_mask: dict[str, Any], published_mask: dict[str, Any], usable: bool
) -> None:
    assert _masks_as_much(_revision(kept_mask), _revision(published_mask)) == usable


@pytest.mark.parametrize(
    ("mask", "reason"), [({}, "pipe-broken"), ({"a": "drop"}, "mask-unavailable")], ids=["plain", "masked"]
)
async def test_a_declaration_on_which_the_code_fails_breaks_its_pipe_only(
    monkeypatch: pytest.MonkeyPatch, mask: dict[str, Any], reason: str
) -> None:
    health = Health("normalize", "test")
    registry = PipeRegistry("nowhere:1", Topics("t"), health)
    for offset, (name, section) in enumerate((("bad", mask), ("good", {}))):
        record = pipe_record(pipe(name, mask=section))
        registry._apply(SimpleNamespace(key=record.key, value=record.value, offset=offset, timestamp=0))

    def fail_on_bad(declared: Pipe) -> NormalizeProgram:
        if declared.pipe == "bad":
            raise ZeroDivisionError
        return compile_pipe(declared)

    monkeypatch.setattr(compiled_pipes, "compile_pipe", fail_on_bad)
    pipes = CompiledPipes(registry, health, 60, FunctionRunner(FunctionLimits(1, 1, 2**28), health))
    await pipes.start()
    assert pipes.get("good", 1).steps == ()
    with pytest.raises(Rejected, match=f"{reason}: .*ZeroDivisionError"):
        pipes.get("bad", 1)
    assert "ZeroDivisionError" in health.warnings["pipe bad"]
