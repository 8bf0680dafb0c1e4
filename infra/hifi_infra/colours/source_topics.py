"""Topics of a stream that outlive both colours, on the control plane's Kafka: sources go on from them."""

from dataclasses import dataclass

from hifi.kafka.topics import Topic, Topics


@dataclass(frozen=True, slots=True)
class SourceTopics:
    """Topics of the progress of tables and objects, and of the election of their readers.

    Args:
        stream: topics of the stream, of the same names in each colour and here.
    """

    stream: Topics

    @property
    def prefix(self) -> str:
        """The name of the stream."""
        return self.stream.prefix

    def all(self) -> list[Topic]:
        """Both topics, to create them."""
        topic_names = {self.stream.source_progress, self.stream.collect_leader}
        return [topic for topic in self.stream.all() if topic.name in topic_names]
