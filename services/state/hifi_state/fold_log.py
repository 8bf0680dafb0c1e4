"""The topic `folds`: the progress of a step, which only the instance that took over last can write."""

from hifi.kafka.fenced_writer import FencedWriter, Overtaken
from hifi.kafka.settings import ServiceSettings
from hifi.kafka.topic_follower import TopicFollower
from hifi.record.record import Record
from hifi.runtime.errors import Fenced, Misconfigured, Retryable
from hifi_state.fold.progress import Progress


class FoldLog:
    """The record of one step.

    Attributes:
        progress: as it was at the takeover; None: the step had none yet.
    """

    def __init__(self, settings: ServiceSettings, pipe: str) -> None:
        """Nothing is known before `take_over`.

        Args:
            settings: of the service.
            pipe: of the step.
        """
        self._settings = settings
        self._topic = settings.topics.folds
        self._pipe = pipe
        self._value: bytes | None = None
        self.progress: Progress | None = None
        self._writer = FencedWriter(
            settings.kafka, settings.topics.step_writer(pipe), client_id=settings.instance
        )

    async def take_over(self) -> None:
        """End the right of earlier instances to write, then read; retries until Kafka answers.

        Raises:
            Misconfigured: it cannot be read. The step must not begin anew: its open windows would be lost.
        """
        await self._writer.start()
        follower = TopicFollower(
            self._settings.kafka, self._settings.instance, {self._topic: self._take_record}
        )
        self._value = None
        await follower.read_decided()
        self.progress = kept_progress(self._value, self._pipe, self._topic)

    async def keep(self, progress: Progress) -> None:
        """Write the progress.

        Raises:
            Fenced: another instance has taken over, or it is not known whether it was written. Take over again.
        """
        try:
            await self._writer.write(self._topic, [Record(self._pipe.encode(), progress.encode(), [])])
        except (Overtaken, Retryable) as error:
            raise Fenced(f"the progress of the step was not written: {error}") from error

    async def stop(self) -> None:
        """Disconnect."""
        await self._writer.stop()

    def _take_record(self, key: bytes | None, value: bytes | None, _: int) -> None:
        if key == self._pipe.encode():
            self._value = value


def kept_progress(value: bytes | None, pipe: str, topic: str) -> Progress | None:
    """The progress that a record has; None: there is none.

    Args:
        value: of the newest record of the step.
        pipe: of the step.
        topic: where it is, for the error.

    Raises:
        Misconfigured: another release wrote it, or it is damaged.
    """
    if not value:
        return None
    try:
        return Progress.decode(value)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise Misconfigured(
            f"the progress of the step {pipe} on {topic} cannot be read ({error!r}): run the release that wrote it, or"
            " delete the record of the pipe there to begin anew"
        ) from None
