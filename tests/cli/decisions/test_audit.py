"""`flyball audit`, and what `flyball explain` has from a trail."""

from collections.abc import Callable
from pathlib import Path

import msgspec
import yaml
from tests.actuators.ledger.test_audit import fill, opened
from tests.actuators.ledger.test_ledger import outcome
from tests.actuators.loop import PARTITIONS, publish
from tests.actuators.samples import NOW, scale
from tests.brokers.embedded import EmbeddedBroker
from tests.cli.shell import flyball


def test_a_trail_is_held_to_the_topic_of_outcomes(
    embedded_broker: Callable[..., EmbeddedBroker], tmp_path: Path
) -> None:
    address, path = embedded_broker(PARTITIONS).bootstrap, tmp_path / "audit"
    with opened(path) as trail:
        last = msgspec.structs.replace(outcome("d2"), audit=fill(trail))
    publish(address, scale("d2"), last)
    good = flyball("audit", "verify", str(path), "--bootstrap", address)
    assert good.returncode == 0, good.stderr
    assert f"anchored up to line 17 of {path}" in good.stdout
    config = tmp_path / "flyball.yaml"
    config.write_text(yaml.safe_dump({"kafka": {"bootstrap": address}, "actuator": {"audit": str(path)}}))
    explained = flyball("explain", "d2", "--config", str(config))
    assert "/scale 200 r2" in " ".join(explained.stdout.split()), explained.stderr
    shown = flyball("audit", "show", "d2", "--config", str(config))
    words = " ".join(shown.stdout.split())
    assert "call PUT /scale 200, request r2" in words, shown.stderr
    assert "checks observed 2 passed" in words
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:-2]))
    cut = flyball("audit", "verify", str(path), "--bootstrap", address)
    assert cut.returncode == 1
    assert "audit:15: this is the last line" in cut.stderr
    assert "the outcome of decision d2" in cut.stderr
    offline = flyball("audit", "verify", str(path), "--offline")
    assert offline.returncode == 0
    assert "lines that were cut off the end would not be noticed" in offline.stdout
    kept = flyball("audit", "verify", str(path), "--offline", "--anchor", last.audit)
    assert kept.returncode == 1
    nothing = flyball("audit", "verify", str(path), "--offline", "--anchor", str(NOW))
    assert "is no TRAIL/LINE/CHECKSUM" in nothing.stderr


def test_a_trail_that_was_replaced_as_a_whole_is_missed(
    embedded_broker: Callable[..., EmbeddedBroker], tmp_path: Path
) -> None:
    address = embedded_broker(PARTITIONS).bootstrap
    path, forged, standby = (tmp_path / name for name in ("audit", "forged", "standby"))
    for file, decision in ((path, "d2"), (standby, "s2")):
        with opened(file) as trail:
            publish(
                address, msgspec.structs.replace(outcome(decision), audit=fill(trail), actuator=f"{file.name}-1/7/f")
            )
    with opened(forged) as trail:  # a valid chain of the same length, by someone who can write the file
        fill(trail)
    name = path.read_bytes().split()[2].decode()
    both = flyball("audit", "verify", str(path), str(standby), "--bootstrap", address)
    assert both.returncode == 0, both.stderr
    assert both.stdout.count("anchored up to line 17") == 2

    one = flyball("audit", "verify", str(standby), "--bootstrap", address)
    assert one.returncode == 1
    assert f"Error: trail {name} of audit-1 is in none of the files: 1 outcomes until 2027-01-15T08:00:" in one.stderr
    assert "when it had 17 lines or more; give its file too, or it was removed or replaced" in one.stderr
    part = flyball("audit", "verify", str(standby), "--part", "--bootstrap", address)
    assert (part.returncode, part.stderr) == (0, "")
    assert f"trail {name} of audit-1 is in none of the files" in part.stdout

    path.write_bytes(forged.read_bytes())
    for more in ((), ("--part",), (str(standby),)):
        replaced = flyball("audit", "verify", str(path), *more, "--bootstrap", address)
        assert replaced.returncode == 1, more
        assert f"{path}:7: this is the first of 3 last outcomes that no outcome on the topic names" in replaced.stderr
    with opened(tmp_path / "empty"):
        pass
    path.write_bytes((tmp_path / "empty").read_bytes())
    emptied = flyball("audit", "verify", str(path), str(standby), "--bootstrap", address)
    assert emptied.returncode == 1
    assert f"Error: trail {name} of audit-1 is in none of the files" in emptied.stderr
