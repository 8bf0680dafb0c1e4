"""A command that sets up begins again while Kafka is slow, and ends with what is wrong otherwise."""

import pytest

from hifi.runtime.errors import HifiError, MaskUnavailable, Misconfigured, Retryable, Unprepared
from hifi_infra.setup_command import exit_status, repeated


class Attempts:
    """Raises the errors in turn, then succeeds."""

    def __init__(self, *errors: Exception) -> None:
        self._errors = list(errors)
        self.count = 0

    async def __call__(self) -> None:
        self.count += 1
        if self._errors:
            raise self._errors.pop(0)


async def test_it_begins_again_while_kafka_is_slow() -> None:
    attempts = Attempts(Retryable("Kafka did not create the ACLs"), Retryable("Kafka does not answer"))
    await repeated(attempts, repeat_s=60)
    assert attempts.count == 3


async def test_a_wrong_setting_ends_it_at_once() -> None:
    attempts = Attempts(Misconfigured("a password is missing"))
    with pytest.raises(Misconfigured, match="a password is missing"):
        await repeated(attempts, repeat_s=60)
    assert attempts.count == 1


async def test_it_ends_when_kafka_stays_slow() -> None:
    attempts = Attempts(*[Retryable("Kafka does not answer")] * 2)
    with pytest.raises(Retryable, match="Kafka does not answer"):
        await repeated(attempts, repeat_s=0)
    assert attempts.count == 1


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (Misconfigured("a pipe is wrong"), 2),
        (MaskUnavailable("the key of a mask cannot be read"), 2),
        (Unprepared("the topics s.raw are missing"), 1),
        (Retryable("Kafka does not answer"), 1),
    ],
)
def test_only_what_a_new_attempt_cannot_mend_ends_the_job_for_good(error: HifiError, status: int) -> None:
    """With status 2 Kubernetes starts no further pod of it: see `podFailurePolicy` of the chart."""
    assert exit_status(error) == status
