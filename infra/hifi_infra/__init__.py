"""What a mesh runs on: jars, Kafka brokers, and a supervisor for the processes of one machine."""
