"""CloudEvents 1.0: decode events as senders and topics have them. Pure."""
