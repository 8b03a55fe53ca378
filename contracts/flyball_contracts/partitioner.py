"""Which partition a key belongs to: murmur2, as Java clients, Faust and ``murmur2_random`` compute it.

Austin Appleby's MurmurHash2 with the seed of Apache Kafka's ``org.apache.kafka.common.utils.Utils``.
"""

from functools import lru_cache

_SEED = 0x9747B28C
_M = 0x5BD1E995
_MASK = 0xFFFFFFFF


def murmur2(key: bytes) -> int:
    """32-bit hash of a key, as an unsigned number."""
    h = (_SEED ^ len(key)) & _MASK
    whole = len(key) & ~3
    for i in range(0, whole, 4):
        k = int.from_bytes(key[i : i + 4], "little") * _M & _MASK
        k = (k ^ k >> 24) * _M & _MASK
        h = h * _M & _MASK ^ k
    tail = key[whole:]
    if tail:
        h = (h ^ int.from_bytes(tail, "little")) * _M & _MASK
    h = (h ^ h >> 13) * _M & _MASK
    return h ^ h >> 15


@lru_cache(maxsize=1 << 14)
def partition_of(key: bytes, partitions: int) -> int:
    """Partition of a key in a topic with ``partitions`` partitions."""
    return (murmur2(key) & 0x7FFFFFFF) % partitions
