"""NVML itself: how it is opened, its structs and fields, and the gate for every call."""
