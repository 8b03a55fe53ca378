"""What this node can measure, as text for a terminal."""
