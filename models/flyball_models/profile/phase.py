"""Current phase of the work on a device, from its last seconds compared with its last minutes."""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from flyball_models.profile.course import FEATURES
from flyball_models.profile.signals import IDLE_BELOW, Floats

PHASES = ("start", "steady", "prefill", "decode", "checkpoint", "stall", "idle")
START_S, LONGEST_START_S = 60.0, 900.0
"""Longest start of new work, and of work that has not run anything yet."""
HUSHED, SILENT = 0.5, 0.3
"""Shares of the usual activity below which a checkpoint, and a stall, are assumed."""
WRITES = 0.15
"""Rise of written bytes above the usual, in the decades of the signals, during a checkpoint."""
PROMPT_PER_ANSWER = 7.5
"""Prompt tokens that a GPU processes in the time of one answer token, of an 8B model: 12,000 to 1,600 a second."""
_AT = {name: i for i, name in enumerate(FEATURES)}
_ANSWER_MOST = 6.0


def phases(features: Floats, recent: Mapping[str, Floats], seen_s: Floats) -> NDArray[np.int64]:
    """Index in :data:`PHASES` of each device, -1 if its use is unknown.

    ``features`` float32[F, N] of minutes, ``recent`` [N] each of seconds. A server without requests is idle and not
    stalled; a checkpoint is a pause with bytes written to disk, over PCIe or to the network. Prefill or decode is the
    one that takes more of a language model's time, by the tokens it reports.
    """
    with np.errstate(invalid="ignore", over="ignore"):
        usual_use, now_use = features[_AT["use"]], recent["use"]
        usual = _first(features[_AT["sm"]], usual_use)
        now = _first(recent["sm"], now_use)
        serves_requests = features[_AT["reports_requests"]] > 0.5
        idle = (now_use < IDLE_BELOW) & ((usual_use < IDLE_BELOW) | serves_requests)
        starts = (seen_s < START_S) | ((seen_s < LONGEST_START_S) & (usual_use < IDLE_BELOW))
        starts &= ~(features[_AT["memory"]] < 0.02)
        wrote = np.zeros(len(usual), bool)
        for name in ("disk_write", "pcie_out", "network"):
            wrote |= recent[name] - features[_AT[name]] > WRITES
        saves = (now < HUSHED * usual) & wrote & (usual_use > 0.2)
        stalls = (now < SILENT * usual) & (usual_use > 0.2) & ~serves_requests
        read = 10.0 ** (_ANSWER_MOST * features[_AT["tokens_in"]]) - 1.0
        written = 10.0 ** (_ANSWER_MOST * features[_AT["tokens_out"]]) - 1.0
        talks = np.isfinite(read) & np.isfinite(written) & (read + written > 0.0)
        reads = talks & (read > PROMPT_PER_ANSWER * written)
    found = np.full(len(usual), PHASES.index("steady"))
    for name, which in (
        ("decode", talks & ~reads),
        ("prefill", reads),
        ("stall", stalls),
        ("checkpoint", saves),
        ("idle", idle),
        ("start", starts),
    ):
        found[which] = PHASES.index(name)
    found[~np.isfinite(now_use)] = -1
    return found


def _first(x: Floats, other: Floats) -> Floats:
    """The first known value of two."""
    return np.asarray(np.where(np.isfinite(x), x, other), np.float32)
