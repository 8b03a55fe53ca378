"""What generated work is labelled with, and which combinations there are.

``kind``: what the work is for. ``training`` learns a model from the start, on gangs, with gradient exchange and large
checkpoints; ``fine_tuning`` adapts a known one: small gangs, little exchange, frequent evaluation; ``inference``
answers requests as they arrive; ``batch`` runs through a stock of items without exchange and writes results;
``interactive`` is a person at a notebook. ``family``: what the kernels are. ``bound``: the stage of the iteration in
which the GPU spends most of its time, at least 1.3 times as much as in any other; ``idle`` where kernels run for less
than 5 % of the time.
"""

KINDS = ("training", "fine_tuning", "inference", "batch", "interactive")
FAMILIES = ("transformer", "cnn", "gnn", "recommendation", "diffusion", "video")
UNSEEN = ("speech", "molecular_dynamics", "reinforcement")
"""Families that no table is trained on: recurrent speech models, simulation in FP32 and FP64, and learning from
simulators on the host.
"""
BOUNDS = (
    "compute",
    "memory_bandwidth",
    "memory_capacity",
    "interconnect",
    "network",
    "storage",
    "input",
    "idle",
)
