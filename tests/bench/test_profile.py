"""`bench/profile.py` in its parts: what it counts is what was said, and rivals are judged on the same workloads."""

import json

import numpy as np
from bench import profile
from bench.profiles.labels import FAMILIES, KINDS
from bench.profiles.memory_courses import SHAPES, judged
from bench.profiles.training import document, fit, labelled

from flyball_models.profile import kinds


def test_a_table_without_a_family_never_names_it_and_survives_its_document() -> None:
    rest = FAMILIES[1:]
    table = fit(labelled(500, 3, "trained", rest), labelled(200, 900, "trained", rest))
    assert set(table.families) == set(rest)
    again = kinds.from_json(json.dumps(document(table)))
    held = labelled(100, 77, "held_out")
    found, said, strange = profile.predicted(again, held)
    assert set(profile.accuracy(found, held)) == set(profile.LABELS)
    assert profile.accuracy(found, held)["kind"] > 0.8
    assert 0.0 <= strange <= 1.0
    assert 0.5 < said["kind"] <= 1.0
    counts = np.array(profile.confusion(KINDS, held.kind, found["kind"]))
    assert counts.sum() == 100
    assert counts.trace() == (found["kind"] == held.kind).sum()
    near = profile.nearest_means(held, held)
    assert profile.accuracy(near, held)["kind"] > 0.6
    assert set(profile.rule_of_thumb(held)) == {"bound"}


def test_every_shape_of_memory_is_judged() -> None:
    for shape in SHAPES:
        found = judged(shape, 8, 1.5, 1)
        assert found.warned_before == len(found.lead_s) <= found.ran_out <= found.jobs
