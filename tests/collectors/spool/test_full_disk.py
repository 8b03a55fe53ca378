"""The spool on a disk that is really full: it counts and reports what it does not take, and keeps the rest."""

import json
import sys
from pathlib import Path

from tests.full_disk import on_small_disk

FILLS = """
import json, logging, sys
from pathlib import Path
from flyball_collectors.spool import Spool

logging.basicConfig(level="WARNING", format="%(message)s")
disk = Path(sys.argv[1])
(disk / "other").write_bytes(bytes(20_000))
spool = Spool(disk / "spool", 100_000_000)
kept = [n for n in range(100) if spool.append(b"%d" % n + bytes(2_000))]
(disk / "other").unlink()
back = spool.append(b"back")
spool.close()
again = Spool(disk / "spool", 100_000_000)
read = [record.payload.rstrip(bytes(1)).decode() for record in again.peek(1_000)]
print(json.dumps({"kept": kept, "back": back, "read": read, "dropped": spool.stats.dropped}))
"""


def test_what_it_does_not_take_is_counted_and_the_rest_comes_out(tmp_path: Path) -> None:
    (disk := tmp_path / "disk").mkdir()
    done = on_small_disk(disk, 64, sys.executable, "-c", FILLS, disk)
    assert done.status == 0, done.stderr
    found = json.loads(done.stdout)
    assert 10 < len(found["kept"]) < 100
    assert found["read"] == [*map(str, found["kept"]), "back"]
    assert found["dropped"] == 100 - len(found["kept"])
    assert found["back"]
    assert len(done.stderr.splitlines()) == 1, "one warning, not one a record"
    assert f"{disk / 'spool'} takes no record" in done.stderr
    assert "No space left on device" in done.stderr
