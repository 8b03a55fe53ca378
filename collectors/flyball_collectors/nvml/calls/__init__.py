"""NVML itself: opening, structs and fields, and the gate for every call."""
