"""What is wrong with devices and gangs: one file for each detector."""
