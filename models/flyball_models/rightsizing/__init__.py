"""Resource requests of one replica, from its usage: CPU, memory, and the share of a GPU.

NumPy rather than JAX: a minute's samples are a few scattered additions, and recommendations are rare.
"""
