"""Checks which model or engine the series of a page belong to, so that none are summed by mistake."""

from collections.abc import Mapping, Sequence

from flyball_collectors.workload.scraping.page import PageError, Sample

_SHOWN = 5


def check_apart(found: Sequence[Sample], match: Mapping[str, str], model: str) -> None:
    """Raise :class:`PageError` if the samples do not distinguish the target.

    That is if none has a label of ``match`` or none has its value, and if the label ``model`` has several values and
    ``match`` names none of them. A page without samples, of an unused server, is valid.
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
