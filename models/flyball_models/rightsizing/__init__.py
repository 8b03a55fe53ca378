"""What one replica should ask for: requests of CPU and memory, and the slice of a GPU, from what it used.

NumPy rather than JAX: a minute's samples are a few scattered additions, and recommendations are rare.
"""
