"""The test of all devices together: a sum over all of them, as training does at each step."""

from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

SUMMED, CPU_SUMMED = 1 << 22, 1 << 16
"""Numbers of four bytes that each device adds: 16 MiB, and 256 KiB."""


class AllReduce:
    """Sums of whole numbers over all devices; each must have the same, exact result."""

    def __init__(self, devices: list[Any]) -> None:
        mesh = Mesh(np.array(devices), ("device",))
        self._devices = devices
        self._count = SUMMED if devices[0].platform != "cpu" else CPU_SUMMED
        spec = cast("Any", PartitionSpec)  # has no types
        self._split, everywhere = NamedSharding(mesh, spec("device")), NamedSharding(mesh, spec())
        self._sum = jax.jit(total, out_shardings=everywhere)  # pyright: ignore[reportUnknownMemberType]

    def round(self, number: int) -> dict[int, str]:
        """Errors of a round, as text, by the index of the device."""
        factors = np.arange(len(self._devices), dtype=np.uint32) * 2 + number + 1
        numbers = np.arange(self._count, dtype=np.uint32)
        values = cast("jax.Array", jax.device_put(factors[:, None] * numbers, self._split))  # pyright: ignore[reportUnknownMemberType]
        summed = cast("jax.Array", self._sum(values))
        shown = {shard.device: np.asarray(shard.data) for shard in summed.addressable_shards}
        expected = factors.sum(dtype=np.uint32) * numbers
        wrong = [i for i, device in enumerate(self._devices) if not np.array_equal(shown[device], expected)]
        return dict.fromkeys(wrong, "a sum over all devices is wrong here")


def total(values: jax.Array) -> jax.Array:
    """Sum over the first axis, modulo 2^32."""
    return jnp.sum(values, axis=0, dtype=jnp.uint32)
