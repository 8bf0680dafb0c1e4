"""The desired releases, and their deployments. Filled from the control plane's topics."""

from collections import defaultdict

from hifi.control import request
from hifi.control.releases import deployment, desired_release
from hifi.control.releases.deployment import Deployment
from hifi.control.releases.desired_release import DesiredRelease
from hifi.control.request import Request, Wishes, wishes
from hifi.kafka.topic_follower import Take
from hifi.kafka.topics import ControlTopics


class DesiredReleases:
    """The newest of each service."""

    def __init__(self) -> None:
        self.releases: dict[str, DesiredRelease] = {}
        """Service to its newest desired release."""
        self.deployments: dict[str, Deployment] = {}
        """Service to the deployment that was written last."""
        self._requests: defaultdict[str, list[Request]] = defaultdict(list)

    def handlers(self, topics: ControlTopics) -> dict[str, Take]:
        """Topic to the handler of its records."""
        return {
            topics.releases: self.take_release,
            topics.requests: self.take_request,
            topics.deployments: self.take_deployment,
        }

    def take_release(self, _: bytes | None, value: bytes | None, offset: int) -> None:
        """Take in a record of the topic `releases`."""
        release = desired_release.decode(value, offset)
        self.releases[release.service] = release

    def take_request(self, _: bytes | None, value: bytes | None, __: int) -> None:
        """Take in a record of the topic `requests`."""
        decoded = request.decode(value)
        self._requests[decoded.scope].append(decoded)

    def take_deployment(self, _: bytes | None, value: bytes | None, __: int) -> None:
        """Take in a record of the topic `deployments`."""
        status = deployment.decode(value)
        self.deployments[status.service] = status

    def wishes(self, service: str, number: int) -> Wishes:
        """The requests of people about the deployment of a release."""
        return wishes(self._requests[f"service/{service}"], number)
