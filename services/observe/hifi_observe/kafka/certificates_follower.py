"""Follow the topics `certificates`: when those of each service expire, and with two colours those of the front."""

from hifi.kafka.certificate_reports import ReportedCertificates
from hifi.kafka.topic_follower import TopicFollower

_FOLLOW_S = 5.0


async def follow_certificates(
    bootstrap: str, instance: str, topic: str, certificates: ReportedCertificates
) -> None:
    """Follow a topic until cancelled; while Kafka is away what was read last holds."""
    await TopicFollower(bootstrap, instance, {topic: certificates.take}).keep_up(_FOLLOW_S)
