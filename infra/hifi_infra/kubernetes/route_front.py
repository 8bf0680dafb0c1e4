"""A Gateway as the front of two colours: an HTTPRoute of the Helm chart, whose weights are the colours' shares.

Unlike HAProxy, a Gateway divides all requests by chance, whatever their key, and sends none to the other colour when
one refuses connections.
"""

import asyncio
import time
from collections.abc import Callable, Mapping
from typing import Final

from hifi.runtime import log
from hifi.runtime.errors import Misconfigured, Retryable
from hifi_infra.kubernetes import colour_route
from hifi_infra.kubernetes.colour_route import ColourRoute
from hifi_infra.kubernetes.fenced_changes import FencedChanges
from hifi_infra.kubernetes.kubernetes_api import KubernetesApi, NoResource

_GATEWAY: Final = "gateway.networking.k8s.io/v1"
_ROUTES: Final = "httproutes"
_TAKEN_WITHIN_S: Final = 10
_POLL_S: Final = 0.2

logger = log.get(__name__)


class RouteFront:
    """Changes the weights of an HTTPRoute. As `hifi_infra.colours.front.Front`.

    Call `refresh` every few seconds: then weights that something else has changed, such as an upgrade of the Helm
    release, are set again.

    Args:
        api: of Kubernetes.
        name: of the HTTPRoute.
        url: where senders reach it.
        backends: colour to the Service of its ingest.
        token: returns the number of the record that says the shares; it grows, and fences actors with an earlier one.
    """

    stats = ""

    def __init__(
        self,
        api: KubernetesApi,
        name: str,
        url: str,
        backends: Mapping[str, str],
        token: Callable[[], int],
    ) -> None:
        self._api = api
        self._changes = FencedChanges(api, _GATEWAY, _ROUTES)
        self._name = name
        self._backends = backends
        self._token = token
        self._given: Mapping[str, int] = {}
        """The shares that it was given last; empty: none yet."""
        self.url = url
        self.running = False
        """Whether it had the shares that it was given, when it was last read."""

    async def refresh(self) -> None:
        """Read whether it has the shares that it was given.

        Raises:
            Misconfigured: the cluster has no Gateway API, or no such route, or its rules are not those of two colours.
            Retryable: the API does not answer, or a Gateway does not act by the route.
        """
        if not self._given:
            return
        route = await self._read()
        if self.running and route.shares != self._given:
            logger.warning("shares-changed-by-another", route=self._name, shares=dict(route.shares))
        self.running = route.shares == self._given
        if reason := _reason(route, route.shares):
            raise Retryable(reason)

    async def start(self, shares: Mapping[str, int]) -> None:
        """Give it these shares; raises as `divide`."""
        await self.divide(shares)

    async def divide(self, shares: Mapping[str, int]) -> None:
        """Change the shares; returns once every Gateway has taken them. Requests under way are finished where they are.

        Raises:
            Misconfigured: as `refresh`.
            Retryable: a later record was followed, a Gateway does not take them in time, or the API does not answer.
        """
        self._given, self.running = dict(shares), False
        await self._changes.make(
            f"the HTTPRoute {self._name}", self._token(), self._read, lambda route: route.change_to(shares)
        )
        end_s = time.monotonic() + _TAKEN_WITHIN_S
        while reason := _reason(await self._read(), shares):
            if time.monotonic() > end_s:
                raise Retryable(f"the shares are not in force within {_TAKEN_WITHIN_S} s: {reason}")
            await asyncio.sleep(_POLL_S)
        self.running = True

    async def shares(self) -> dict[str, int]:
        """The shares in force.

        Raises:
            Misconfigured: as `refresh`.
            Retryable: a Gateway has not taken them, no colour gets requests, or rules differ.
        """
        route = await self._read()
        if reason := _reason(route, route.shares or None):
            raise Retryable(reason)
        return dict(route.shares)

    async def renew_certificate(self) -> None:
        """Nothing to do: the Gateway has the certificate."""

    async def stop(self) -> None:
        """Leave the route as it is: Helm made it, and removes it."""

    async def kill(self) -> None:
        """Leave the route as it is, as `stop` does."""

    async def _read(self) -> ColourRoute:
        try:
            route = await self._api.get(_GATEWAY, _ROUTES, self._name)
        except NoResource as error:
            text = (
                f"there is no HTTPRoute {self._name}: set route.enabled of the Helm chart"
                if error.is_kind_known
                else f"this cluster has no Gateway API ({_GATEWAY}): install its CRDs and a Gateway's controller, then "
                "upgrade the Helm release"
            )
            raise Misconfigured(text) from None
        return colour_route.read(route, self._backends)


def _reason(route: ColourRoute, shares: Mapping[str, int] | None) -> str:
    """Why a route does not divide requests by these shares; None: by any. Empty: it does."""
    if route.shares != shares:
        return f"the HTTPRoute {route.name} has other weights, or rules with different ones"
    return f"the HTTPRoute {route.name} waits: {route.waits_for}" if route.waits_for else ""
