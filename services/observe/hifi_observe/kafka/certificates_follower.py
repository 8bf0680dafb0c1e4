"""Follow the topic `certificates`: when those of each service expire."""

from hifi.kafka.certificate_reports import ReportedCertificates
from hifi.kafka.topic_follower import TopicFollower
from hifi_observe.settings import ObserveSettings

_FOLLOW_S = 5.0


async def follow_certificates(settings: ObserveSettings, certificates: ReportedCertificates) -> None:
    """Follow until cancelled; while Kafka is away what was read last holds."""
    takes = {settings.topics.certificates: certificates.take}
    follower = TopicFollower(settings.kafka, settings.instance, takes)
    try:
        await follower.start()
        await follower.poll(_FOLLOW_S)
    finally:
        await follower.stop()
