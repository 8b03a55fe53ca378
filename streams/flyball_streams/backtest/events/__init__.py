"""The event-driven engine simulates single requests, batches and replicas, to verify rankings by the fluid engine."""
