"""Java for Kafka and Spark: finding or installing it, the locked jars, and the command line of Kafka's programs."""
