"""Cooperative rebalancing (KIP-429) for aiokafka; see README.md beside this file."""

from aiokafka_cooperative.compatibility import IncompatibleAiokafkaError, check_compatibility
from aiokafka_cooperative.consumer import CooperativeConsumer
from aiokafka_cooperative.coordinator import GroupMembership, TopicMissingError
from aiokafka_cooperative.injection import start_with_classes

__all__ = [
    "CooperativeConsumer",
    "GroupMembership",
    "IncompatibleAiokafkaError",
    "TopicMissingError",
    "check_compatibility",
    "start_with_classes",
]
