"""The mark of a decision in a job's comment, beside the rest of the comment."""

import re
from typing import Literal, NamedTuple
from urllib.parse import quote, unquote

Verb = Literal["stop", "start", "started", "move", "moved"]
_FORM = re.compile(r"flyball:([^\s:]+):(stop|start|started|move|moved)\.(\d+)\.(\d+)(?:@(\d+))?")


class Mark(NamedTuple):
    """What ``decision`` does to a job that had ``restarts`` when it was marked; ``jobs`` were marked in all.

    ``started`` and ``moved``: the job was released. ``due_s``: a checkpoint was requested, and the job is stopped then.
    """

    decision: str
    verb: Verb
    restarts: int
    jobs: int
    due_s: int | None = None

    def __str__(self) -> str:
        due = "" if self.due_s is None else f"@{self.due_s}"
        return f"flyball:{quote(self.decision, safe='')}:{self.verb}.{self.restarts}.{self.jobs}{due}"


def mark_of(comment: str) -> Mark | None:
    """Parse the mark in a comment."""
    for word in reversed(comment.split()):
        found = _FORM.fullmatch(word)
        if found:
            decision, verb, restarts, jobs, due = found.groups()
            known: dict[str, Verb] = {v: v for v in ("stop", "start", "started", "move", "moved")}
            return Mark(unquote(decision), known[verb], int(restarts), int(jobs), int(due) if due else None)
    return None


def marked(comment: str, mark: Mark) -> str:
    """The comment with this mark in place of an earlier one."""
    return f"{unmarked(comment)} {mark}".lstrip()


def unmarked(comment: str) -> str:
    """The comment without a mark."""
    return " ".join(word for word in comment.split() if not _FORM.fullmatch(word))
