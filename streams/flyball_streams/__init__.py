"""The event-time engine and what moves records around it."""
