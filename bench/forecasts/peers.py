"""Forecasts of statsforecast on given origins, as a program of its own: its pins differ from ours.

    python bench/forecasts/peers.py IN.npz OUT.npz NAME...

The interpreter needs numpy and statsforecast only. IN has contexts [C, L] and horizons; OUT gets forecasts [C, H]
by name, and the fits per second of each on one thread. One short fit before the clock starts compiles the library.
"""

import importlib
import importlib.metadata
import sys
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

SEASON = 144
NAMES = ("MSTL+AutoETS", "MSTL+AutoETS log1p", "AutoETS", "DynamicOptimizedTheta")


def models() -> dict[str, Callable[[], Any]]:
    """Return the makers of the library's models; each series has a new one."""
    made: Any = importlib.import_module("statsforecast.models")

    def mstl() -> Any:
        return made.MSTL(season_length=SEASON, trend_forecaster=made.AutoETS(model="ZZN"))

    return {
        "MSTL+AutoETS": mstl,
        "MSTL+AutoETS log1p": mstl,
        "AutoETS": lambda: made.AutoETS(season_length=1),
        "DynamicOptimizedTheta": lambda: made.DynamicOptimizedTheta(season_length=SEASON),
    }


def forecast(make: Callable[[], Any], logged: bool, y: NDArray[np.float64], h: int) -> NDArray[np.float64]:
    """Return `h` values after the context, at least 0."""
    y = np.log1p(y) if logged else y
    made = np.asarray(make().forecast(y=y, h=h)["mean"], float)
    made = np.expm1(made) if logged else made
    return np.where(made > 0, made, 0.0)


def main(arguments: list[str]) -> None:
    """Read contexts, write forecasts and rates."""
    source, target, *names = arguments
    warnings.simplefilter("ignore")
    with np.load(source) as given:
        contexts, h = given["contexts"].astype(float), int(given["horizons"])
    out: dict[str, Any] = {"version": importlib.metadata.version("statsforecast")}
    for name in names:
        make, logged = models()[name], name.endswith("log1p")
        forecast(make, logged, contexts[0], h)
        start = time.perf_counter()
        out[name] = np.stack([forecast(make, logged, y, h) for y in contexts]).astype(np.float32)
        out[f"{name} per second"] = len(contexts) / (time.perf_counter() - start)
    np.savez(target, **out)


if __name__ == "__main__":
    main(sys.argv[1:])
