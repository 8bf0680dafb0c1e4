"""Cooperative rebalancing (KIP-429) for aiokafka."""
