"""Commands for those who set up Kafka: ACLs and topics."""
