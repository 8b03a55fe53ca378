"""Trains the table with which profiles recognise kinds, model families and bottlenecks, and writes it into the models.

    python bench/profiles/train.py [--out PATH]

Seeds are fixed, so the same code gives the same table. It sees only the first, third and last fifth of the range of
each parameter, and none of the families in ``UNSEEN``: ``bench/profile.py`` judges it on the others.
"""

import argparse
import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from bench.profiles.training import document, fit, labelled

TABLE = Path(__file__).resolve().parents[2] / "models" / "flyball_models" / "profile" / "kinds.json"
COUNT, HELD = 24_000, 4_000
SEED, HELD_SEED = 1_000, 900_000


def main(arguments: list[str] | None = None) -> int:
    """Train and write."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--out", type=Path, default=TABLE, help="where the table goes (default: %(default)s)")
    options = parser.parse_args(arguments)
    table = fit(labelled(COUNT, SEED, "trained"), labelled(HELD, HELD_SEED, "trained"))
    text = json.dumps(document(table), separators=(",", ":")).replace('{"kind"', '\n{"kind"')
    options.out.write_text(text + "\n")
    print(f"{len(table.centres)} classes, temperatures {table.temperatures}, strange from {table.novel:.3g}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
