"""The topic `folds`: the progress of a step, which only the instance that took over last can write."""

from hifi.kafka.fenced_writer import FencedWriter, Overtaken
from hifi.kafka.settings import ServiceSettings
from hifi.kafka.topic_follower import TopicFollower
from hifi.record.record import Record
from hifi.runtime.errors import Fenced, Retryable
from hifi_state.fold.progress import Progress


class FoldLog:
    """The record of one step."""

    def __init__(self, settings: ServiceSettings, pipe: str) -> None:
        """Nothing is known before `take_over`.

        Args:
            settings: of the service.
            pipe: of the step.
        """
        self._settings = settings
        self._topic = settings.topics.folds
        self._key = pipe.encode()
        self._progress: Progress | None = None
        self._writer = FencedWriter(
            settings.kafka, settings.topics.step_writer(pipe), client_id=settings.instance
        )

    async def take_over(self) -> Progress | None:
        """End the right of earlier instances to write, then read; retries until Kafka answers.

        Returns:
            The progress; None: the step has none yet.
        """
        await self._writer.start()
        follower = TopicFollower(
            self._settings.kafka, self._settings.instance, {self._topic: self._take_record}
        )
        self._progress = None
        try:
            await follower.start()
        finally:
            await follower.stop()
        return self._progress

    async def keep(self, progress: Progress) -> None:
        """Write the progress.

        Raises:
            Fenced: another instance has taken over, or it is not known whether it was written. Take over again.
        """
        try:
            await self._writer.write(self._topic, [Record(self._key, progress.encode(), [])])
        except (Overtaken, Retryable) as error:
            raise Fenced(f"the progress of the step was not written: {error}") from error

    async def stop(self) -> None:
        """Disconnect."""
        await self._writer.stop()

    def _take_record(self, key: bytes | None, value: bytes | None, _: int) -> None:
        if key == self._key:
            self._progress = Progress.decode(value) if value else None
