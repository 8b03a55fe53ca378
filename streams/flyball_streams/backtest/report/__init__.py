"""The result for a reader: the claim, the largest decisions, text, page and charts."""
