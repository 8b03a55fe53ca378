"""One view for each thing that a reader may ask about: a decision, a GPU, a node, a workload, an incident."""
