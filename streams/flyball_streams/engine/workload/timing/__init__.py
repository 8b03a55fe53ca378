"""When deferrable jobs run: the course of carbon, the progress of jobs, and the schedule before a deadline."""
