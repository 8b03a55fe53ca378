"""The way to Kafka: the producer, and the disk spool for what Kafka does not take."""
