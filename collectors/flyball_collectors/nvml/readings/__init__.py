"""What is read of one device at each tick, and the frames it becomes."""
