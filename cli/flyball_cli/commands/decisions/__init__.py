"""Commands about decisions: explanations, outcomes, and operators' orders."""
