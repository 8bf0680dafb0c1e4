"""Kafka on this machine: brokers, their KRaft settings, and the topics and pipes of a stream."""
