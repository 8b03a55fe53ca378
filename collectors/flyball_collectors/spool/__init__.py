"""A bounded, checksummed, self-healing queue on disk: where messages wait while Kafka is away.

Guarantees, each with its test: at most ``budget_bytes`` of files, the oldest records go first; a kill at any byte loses
at most the record being written; a damaged record loses itself and no other; a full disk loses what does not fit; every
record comes out at least once, in order, or is counted as lost.

Why no library: SQLite (and litequeue, persist-queue and diskcache on top of it) has no checksums, so most flipped
bytes come out unnoticed as other data and the rest break the whole file; queues of plain files in those packages
keep data and position in two files that can disagree.
"""

from flyball_collectors.spool.codec import pack as pack, unpack as unpack
from flyball_collectors.spool.record import Record as Record
from flyball_collectors.spool.spool import Spool as Spool, SpoolStats as SpoolStats
