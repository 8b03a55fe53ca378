"""Commands about decisions: why they were made, what became of them, and what people order."""
