"""Settings of a worker's process: computation in one thread, and a rare garbage collector."""

import gc
import os
from typing import Any

import jax

GC_OBJECTS = 50_000


def compute_in_this_thread() -> None:
    """Make compiled models run in the calling thread; call it before the first of them.

    A call takes some ten microseconds, less than waking the threads that would otherwise run it.
    """
    settings: Any = jax.config
    settings.update("jax_cpu_enable_async_dispatch", False)
    os.environ.setdefault("PJRT_NPROC", "1")  # XLA reads it when it makes its pool of threads


def calm_collector() -> None:
    """Make the cyclic garbage collector rare: by default it takes an eighth of the CPU to scan long-lived objects.

    A step makes tens of thousands of records and messages without cycles, and drops them all.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(GC_OBJECTS, 20, 20)
