"""What a worker's process is set up for: one thread that computes, and a garbage collector that rests."""

import gc
import os
from typing import Any

import jax

GC_OBJECTS = 50_000


def compute_in_this_thread() -> None:
    """Have compiled models run in the thread that calls them; must be called before the first of them.

    A call takes some ten microseconds, less than to wake the threads that would otherwise run it.
    """
    settings: Any = jax.config
    settings.update("jax_cpu_enable_async_dispatch", False)
    os.environ.setdefault("PJRT_NPROC", "1")  # XLA reads it when it makes its pool of threads


def calm_collector() -> None:
    """Let the cyclic collector rest: by default it takes an eighth of the CPU, looking through what stays for good.

    A step makes tens of thousands of records and messages, in no cycles, and drops them all.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(GC_OBJECTS, 20, 20)
