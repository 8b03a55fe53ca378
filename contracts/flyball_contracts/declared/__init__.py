"""Workloads as their owners write them down, in a file, in annotations or in policies, and what is checked of them."""
