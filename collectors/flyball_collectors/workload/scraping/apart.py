"""Whose series a page has: none may be summed over models or engines that nobody requested."""

from collections.abc import Mapping, Sequence

from flyball_collectors.workload.scraping.page import PageError, Sample

_SHOWN = 5


def check_apart(found: Sequence[Sample], match: Mapping[str, str], model: str) -> None:
    """Raise :class:`PageError` where the samples do not distinguish what is requested.

    That is where none has a label of ``match`` or none the value of it, and where the label ``model`` has several
    values and ``match`` does not name one. A page without samples, of a server that nobody has used, is fine.
    """
    if not found:
        return
    for label, value in match.items():
        values = _values(found, label)
        if not values:
            others = (
                ", ".join(sorted({name for sample in found for name in sample.labels} - {"le", "quantile"})) or "none"
            )
            raise PageError(
                f"no series has the label {label!r} that match names (labels there: {others}); correct match"
            )
        if value not in values:
            raise PageError(f"no series has {label}={value!r}; set match.{label} to one of {_shown(values)}")
    values = _values(found, model) if model and model not in match else []
    if len(values) > 1:
        raise PageError(
            f"its series are of {len(values)} models, {_shown(values)}; name one of them with match: "
            f"{{{model}: {values[0]}}} (a pod: flyball.dev/model, a job: FLYBALL_MODEL)"
        )


def _values(found: Sequence[Sample], label: str) -> list[str]:
    return sorted({sample.labels[label] for sample in found if label in sample.labels})


def _shown(values: Sequence[str]) -> str:
    return ", ".join(values[:_SHOWN]) + (", ..." if len(values) > _SHOWN else "")
