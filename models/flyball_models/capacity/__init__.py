"""What one replica sustains: estimates from the architecture, from history, online, and all of them weighed."""
