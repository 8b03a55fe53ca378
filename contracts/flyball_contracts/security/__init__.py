"""Secrets, signatures, and who may do what on Kafka."""
