"""make bench-quick: what an event costs beside two baselines of the same run, in about two minutes.

A ratio hardly depends on the machine. It fails only when one is above its bound, which is a factor of `WORSE` above
what was seen when this was written: that is a mistake, not noise.
"""

import sys
from dataclasses import replace

import raw
from cases import CASES, rate
from chain import needed

MESH, CHAIN = "mesh, real-time, single events", "FastStream, tuned batches, single events"
RATE, SECONDS = 500.0, 8.0
WORSE = 3.0
# From the separate runs of docs/benchmarks.md at this rate: the nodes pay for small requests, aiokafka alone does not.
SEEN = {
    "CPU of an event: mesh over FastStream chain": 1.3,
    "CPU of an event: normalize over aiokafka's send and getmany": 38.0,
    "CPU of an event: egest over aiokafka's send and getmany": 33.0,
    "p95: mesh over FastStream chain": 2.3,
}


def main() -> None:
    """Measure, tell, judge."""
    needed()
    alone = raw.measure(20_000)
    found = {}
    for name in (CHAIN, MESH):
        case = replace(CASES[name], first=RATE, most_tries=1)
        [step] = rate(case, SECONDS, slo_ms=60_000)["steps"]
        if step["lost"] or step["wrong"]:
            sys.exit(f"{name}: {step['lost']} events lost, {step['wrong']} arrivals wrong")
        found[name] = step
    mesh, chain = (found[name]["cpu_seconds_per_million"] for name in (MESH, CHAIN))
    node = sum(alone[way]["cpu_seconds_per_million"] for way in ("send", "getmany"))
    lags = [found[name]["lag_ms"]["p95"] for name in (MESH, CHAIN)]
    ratios = {
        "CPU of an event: mesh over FastStream chain": sum(mesh.values()) / sum(chain.values()),
        "CPU of an event: normalize over aiokafka's send and getmany": mesh["normalize"] / node,
        "CPU of an event: egest over aiokafka's send and getmany": mesh["egest"] / node,
        "p95: mesh over FastStream chain": lags[0] / lags[1],
    }
    print(f"\nCPU-seconds a million events: mesh {sum(mesh.values()):,.0f} {mesh}")
    print(f"chain {sum(chain.values()):,.0f} {chain}; aiokafka alone {node:,.0f}")
    print(f"p95: mesh {lags[0]:,.0f} ms, chain {lags[1]:,.0f} ms, both at {RATE:,.0f} ev/s\n")
    bad = [name for name, ratio in ratios.items() if ratio > SEEN[name] * WORSE]
    for name, ratio in ratios.items():
        verdict = "TOO HIGH" if name in bad else "good"
        print(f"{ratio:8.2f}  (seen {SEEN[name]:.2f}, bound {SEEN[name] * WORSE:.2f})  {verdict}  {name}")
    if bad:
        sys.exit(1)


if __name__ == "__main__":
    main()
