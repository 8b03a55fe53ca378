"""Secrets, signatures, and access rights on Kafka."""
