"""The event-driven engine: single requests, batches and replicas, to confirm what the fluid engine ranks."""
