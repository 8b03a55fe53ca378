"""Which workloads are similar does not depend on those that came and went before."""

from random import Random

from hypothesis import given, settings, strategies as st

from flyball_models.profile import kinds
from flyball_models.profile.course import FEATURES
from flyball_streams.engine.workload.profile.fingerprints import Fingerprints


@given(st.integers(0, 2**32))
@settings(max_examples=30, deadline=None)
def test_similar_ones_are_those_that_are_there_now(seed: int) -> None:
    random, table = Random(seed), kinds.shipped()
    kept = Fingerprints(table)
    there: dict[str, list[float | None]] = {}
    for _ in range(60):
        name = f"w{random.randint(0, 30)}"
        if random.random() < 0.3:
            there.pop(name, None)
            kept.drop(name)
        else:
            there[name] = [random.choice([None, random.gauss(0.0, 0.3)]) for _ in FEATURES]
            kept.put(name, there[name])
    fresh = Fingerprints(table)
    for name, fingerprint in sorted(there.items()):
        fresh.put(name, fingerprint)
    for name in there:
        found = kept.similar(name, 0.1)
        assert found == fresh.similar(name, 0.1)
        assert name not in dict(found)
        assert [s for _, s in found] == sorted((s for _, s in found), reverse=True)
        assert len(kept.similar(name, 0.0)) == len(there) - 1
