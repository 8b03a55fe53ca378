"""Delivery to Kafka: the producer, and the disk spool for messages that Kafka does not accept."""
