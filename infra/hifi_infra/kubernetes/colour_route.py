"""The HTTPRoute of the Gateway API before two colours, and the change that divides its requests. Pure.

A rule divides requests by the weights of its `backendRefs`, which a Gateway takes for chances: a request's key does not
choose its colour (https://gateway-api.sigs.k8s.io/reference/spec/#backendref).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from hifi.delivery.colours import NAMES, WHOLE_SHARE
from hifi.runtime.errors import Misconfigured
from hifi_infra.kubernetes.fenced_changes import token_of

_DEFAULT_WEIGHT: Final = 1

Json: TypeAlias = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ColourRoute:
    """The route.

    Attributes:
        name: of the HTTPRoute.
        version: of the resource, which a change names.
        token: fencing token of the last change; -1: there was none.
        shares: colour to its share of the requests in 1/10,000; empty: no colour gets requests, or rules differ.
        waits_for: why a Gateway does not act by what the route says now; empty: all do.
        rules: of its specification.
        backends: colour to the Service of its ingest.
    """

    name: str
    version: str
    token: int
    shares: Mapping[str, int]
    waits_for: str
    rules: Sequence[Json]
    backends: Mapping[str, str]

    def change_to(self, shares: Mapping[str, int]) -> Json | None:
        """The change that divides the requests by these shares; None: nothing is left to do."""
        if self.shares == shares:
            return None
        weights = {self.backends[colour]: share for colour, share in shares.items()}
        rules = [
            {
                **rule,
                "backendRefs": [
                    {**backend, "weight": weights.get(backend["name"], 0)} for backend in rule["backendRefs"]
                ],
            }
            if rule.get("backendRefs")
            else rule
            for rule in self.rules
        ]
        return {"spec": {"rules": rules}}


def read(route: Json, backends: Mapping[str, str]) -> ColourRoute:
    """The route from the API's answer.

    Args:
        route: the answer.
        backends: colour to the Service of its ingest.

    Raises:
        Misconfigured: a rule leads to other Services than these two, so that their weights do not decide.
    """
    metadata = route["metadata"]
    rules = route["spec"].get("rules", [])
    shares = [_shares(metadata["name"], rule, backends) for rule in rules if rule.get("backendRefs")]
    if not shares:
        raise Misconfigured(
            f"the HTTPRoute {metadata['name']} has no rule with backendRefs: {_what_to_do(backends)}"
        )
    return ColourRoute(
        name=metadata["name"],
        version=metadata["resourceVersion"],
        token=token_of(metadata),
        shares=shares[0] if all(share == shares[0] for share in shares) else {},
        waits_for=_waits_for(metadata["generation"], route.get("status", {}).get("parents", [])),
        rules=rules,
        backends=backends,
    )


def _shares(name: str, rule: Json, backends: Mapping[str, str]) -> Mapping[str, int]:
    """The shares of a rule's colours; empty: no colour gets requests."""
    weights = {
        backend["name"]: int(backend.get("weight", _DEFAULT_WEIGHT)) for backend in rule["backendRefs"]
    }
    if len(rule["backendRefs"]) != len(NAMES) or weights.keys() != set(backends.values()):
        raise Misconfigured(
            f"a rule of the HTTPRoute {name} leads to {', '.join(sorted(weights))}: {_what_to_do(backends)}"
        )
    total = sum(weights.values())
    if not total:
        return {}
    first, second = NAMES
    share = round(weights[backends[first]] * WHOLE_SHARE / total)
    return {first: share, second: WHOLE_SHARE - share}


def _what_to_do(backends: Mapping[str, str]) -> str:
    services = " and ".join(backends[colour] for colour in NAMES)
    return (
        f"give each rule the Services of both colours, {services} (route.weights of the chart), and no other"
    )


def _waits_for(generation: int, parents: Sequence[Json]) -> str:
    if not parents:
        return "no Gateway has accepted it: see its parentRefs, and whether the Gateway's controller runs"
    conditions = {
        parent["parentRef"]["name"]: condition
        for parent in parents
        for condition in parent.get("conditions", [])
        if condition["type"] == "Accepted"
    }
    reasons = [
        f"the Gateway {parent['parentRef']['name']} has not looked at it"
        for parent in parents
        if parent["parentRef"]["name"] not in conditions
    ]
    for gateway, condition in conditions.items():
        if condition.get("observedGeneration", generation) < generation:
            reasons.append(f"the Gateway {gateway} has not looked at its last change")
        elif condition["status"] != "True":
            reasons.append(
                f"the Gateway {gateway} refuses it: {condition['reason']}, {condition.get('message', '')}"
            )
    return "; ".join(reasons)
