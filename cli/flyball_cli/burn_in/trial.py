"""The test of one device in a round, and the comparison of its results.

Matrices of small whole numbers have products that floating point holds exactly, so their sums by row and by column are
known beforehand for the price of two products with a vector (Huang and Abraham, "Algorithm-based fault tolerance for
matrix operations", IEEE Transactions on Computers C-33, 1984): one wrong element changes one row sum and one column
sum.
"""

from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar, cast

import jax
import jax.numpy as jnp
import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from flyball_contracts.burn_in import Device

SIZE, CPU_SIZE = 4096, 512
PRODUCTS = 8
LARGEST = 8
"""Matrix elements are below this: an element, a sum of 4096 products, fits into the 24 bits of a float32, and the sum
of a row into an int32.
"""
PIECE, CPU_PIECE = 1 << 28, 1 << 22
"""Numbers of four bytes that are written at once: 1 GiB, and 16 MiB."""
MEMORY_SHARE = 0.5
"""Share of jax's memory that is filled; the matrices need some as well."""
MOVED = 1 << 26
"""Numbers that are transferred at once: 256 MiB."""
Ints = NDArray[np.int64]
P = ParamSpec("P")
R = TypeVar("R")


class Trial:
    """One device; :attr:`found` has the minimum of its rates.

    The first round compiles, and is not timed. ``left`` and ``right`` are the matrices that it multiplies.
    """

    def __init__(self, device: Any) -> None:
        self.found = Device(name=str(device.device_kind))
        self._device, self._real = device, device.platform != "cpu"
        size = SIZE if self._real else CPU_SIZE
        random = np.random.default_rng(size)
        left, right = random.integers(-LARGEST + 1, LARGEST, (2, size, size))
        ones = np.ones(size, np.int64)
        self._rows, self._columns = left @ (right @ ones), (ones @ left) @ right
        self.left, self.right = (_put(one.astype(np.float32), device) for one in (left, right))
        stats: dict[str, int] = (device.memory_stats() if self._real else None) or {}
        budget = int(stats.get("bytes_limit", 0) * MEMORY_SHARE)
        self._piece = min(PIECE, budget // 4) if budget else CPU_PIECE
        self._pieces = max(1, budget // (4 * self._piece))

    def round(self, number: int, clock: Callable[[], float], peer: Any) -> list[str]:
        """Errors of a round, as text."""
        problems = [*self._multiply(number, clock), *self._fill(number, clock)]
        return [*problems, *(self._move(number, clock, peer) if self._real else ())]

    def _multiply(self, number: int, clock: Callable[[], float]) -> list[str]:
        began = clock()
        sums = [_product_sums(self.left, self.right) for _ in range(PRODUCTS)]
        known = [(np.asarray(rows), np.asarray(columns)) for rows, columns in sums]
        took_s = clock() - began
        wrong = sum(wrong_sums(rows, columns, self._rows, self._columns) > 0 for rows, columns in known)
        self._note("matmul_flops", number, 2.0 * len(self._rows) ** 3 * PRODUCTS, took_s)
        return [f"{wrong} of {PRODUCTS} matrix products are wrong"] if wrong else []

    def _fill(self, number: int, clock: Callable[[], float]) -> list[str]:
        seeds = [_put(np.uint32(number * self._pieces + i), self._device) for i in range(self._pieces)]
        began = clock()
        pieces = [_pattern(seed, self._piece) for seed in seeds]
        wrong = sum(int(_differing(piece, seed)) for piece, seed in zip(pieces, seeds, strict=True))
        took_s = clock() - began
        size = 4 * self._piece * self._pieces
        self.found = replace(self.found, memory_bytes=size)
        self._note("memory_bytes_per_s", number, 2.0 * size, took_s)
        return [f"{wrong} of {size // 4} words of memory changed"] if wrong else []

    def _move(self, number: int, clock: Callable[[], float], peer: Any) -> list[str]:
        count = min(MOVED, self._piece)
        sent = np.arange(number, number + count, dtype=np.uint32)
        began = clock()
        there = _put(sent, self._device).block_until_ready()
        arrived = clock()
        back = np.array(there)
        returned = clock()
        self._note("to_device_bytes_per_s", number, 4.0 * count, arrived - began)
        self._note("from_device_bytes_per_s", number, 4.0 * count, returned - arrived)
        problems = [] if np.array_equal(sent, back) else ["data changed on its way between host and device"]
        if peer is not None:
            began = clock()
            beside = _put(there, peer).block_until_ready()
            self._note("peer_bytes_per_s", number, 4.0 * count, clock() - began)
            if not np.array_equal(sent, np.array(beside)):
                problems.append("data changed on its way to the next device")
        return problems

    def _note(self, name: str, number: int, amount: float, took_s: float) -> None:
        """Keep the minimum rate; the second round replaces the rate of the first, which compiles."""
        rate, before = amount / max(took_s, 1e-9), getattr(self.found, name)
        if number <= 1 or before is None or rate < before:
            self.found = replace(self.found, **{name: rate})


def wrong_sums(rows: NDArray[np.int32], columns: NDArray[np.int32], true_rows: Ints, true_columns: Ints) -> int:
    """Number of row and column sums [n] of a product that are wrong."""
    return int((rows != true_rows).sum() + (columns != true_columns).sum())


def _compiled(function: Callable[P, R], static: tuple[str, ...] = ()) -> Callable[P, R]:
    jitted = jax.jit(function, static_argnames=static)  # pyright: ignore[reportUnknownMemberType]
    return cast("Callable[P, R]", jitted)


def _put(values: Any, device: Any) -> jax.Array:
    return cast("jax.Array", jax.device_put(values, device))  # pyright: ignore[reportUnknownMemberType]


@_compiled
def _product_sums(left: jax.Array, right: jax.Array) -> tuple[jax.Array, jax.Array]:
    product = jnp.matmul(left, right, preferred_element_type=jnp.float32).astype(jnp.int32)
    return product.sum(axis=1), product.sum(axis=0)


def _numbers(seed: jax.Array, count: int) -> jax.Array:
    numbers: jax.Array = jax.lax.iota(jnp.uint32, count)
    pattern: jax.Array = numbers * jnp.uint32(2_654_435_761) ^ seed * jnp.uint32(0x9E3779B1)
    return pattern


_pattern = _compiled(_numbers, static=("count",))


@_compiled
def _differing(piece: jax.Array, seed: jax.Array) -> jax.Array:
    return (piece != _numbers(seed, piece.shape[0])).sum(dtype=jnp.uint32)
