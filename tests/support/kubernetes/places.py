"""Addresses and folders of a node, as processes inside its namespaces see them."""

from typing import Final

NODE: Final = "/run/node"
"""All state of the node."""
ADDRESS: Final = "10.240.0.1"
API: Final = f"https://{ADDRESS}:6443"
CONTAINERD: Final = "/run/containerd.sock"
