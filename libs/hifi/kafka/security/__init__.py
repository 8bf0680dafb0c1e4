"""TLS, SASL and ACLs."""

from hifi.kafka.security import judged_brokers, newest_credentials, refusal
from hifi.kafka.security.client_options import client_options, java_client_options, security_of, use
from hifi.kafka.security.settings import KafkaSecurity, load_security

__all__ = ["KafkaSecurity", "client_options", "java_client_options", "load_security", "security_of", "use"]

refusal.apply()
newest_credentials.apply()
judged_brokers.apply()
