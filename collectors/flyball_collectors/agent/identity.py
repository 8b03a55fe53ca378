"""Identity of this run of the agent: node, boot and epoch, which make a frame unique together with its number."""

import fcntl
import logging
import os
import re
import socket
from pathlib import Path
from typing import NamedTuple

from flyball_collectors.kernel import text_of
from flyball_contracts.config import AgentConfig

NODE_VARIABLE = "FLYBALL_NODE"
"""Names the node if the configuration does not: Kubernetes passes it to a pod this way."""
_LOG = logging.getLogger(__name__)
_MAX_DIGITS = 19  # of a time in nanoseconds


class Identity(NamedTuple):
    """Node name, id of the host's boot, and the number of this start of the agent on this node."""

    node: str
    boot_id: str
    epoch: int


def state_folder(config: AgentConfig) -> Path:
    """Folder of the agent's persistent state: ``state_dir``, else ``flyball`` in the user's own state folder."""
    if config.state_dir:
        return Path(config.state_dir)
    base = os.environ.get("XDG_STATE_HOME") or os.path.expanduser("~/.local/state")
    return Path(base) / "flyball"


def file_name(node: str) -> str:
    """``node`` as a part of a file's name."""
    return re.sub(r"[^A-Za-z0-9._-]", "_", node)


def look(config: AgentConfig) -> Identity:
    """Identity without a start: epoch 0; writes nothing."""
    node = config.node or os.environ.get(NODE_VARIABLE) or socket.gethostname()
    boot_id = text_of(Path(config.root) / "proc/sys/kernel/random/boot_id").strip() or "unknown"
    return Identity(node, boot_id, 0)


def identify(config: AgentConfig, now_ns: int) -> Identity:
    """Identity of a run that starts at ``now_ns``.

    The epoch is one more than the last, kept in ``state_dir``. A missing or unreadable count starts from ``now_ns``, so
    that epochs rise although the folder was lost, as a pod's is. If the count cannot be stored, ``now_ns`` is used,
    which rises as long as the clock does.
    """
    identity = look(config)
    file = state_folder(config) / f"epoch-{file_name(identity.node)}"
    try:
        return identity._replace(epoch=_next_epoch(file, now_ns))
    except OSError as error:
        _LOG.warning(
            "the count of starts cannot be kept in %s (%s); the start time stands in: set agent.state_dir to a "
            "folder that the agent may write to",
            file.parent,
            error.strerror,
        )
        return identity._replace(epoch=now_ns)


def is_newest(config: AgentConfig, identity: Identity) -> bool:
    """Whether no other agent of this node has started since, as far as its state folder shows."""
    text = text_of(state_folder(config) / f"epoch-{file_name(identity.node)}").strip()
    return not text.isdecimal() or int(text) <= identity.epoch


def _next_epoch(file: Path, now_ns: int) -> int:
    """Count one start; two agents that start at once get two numbers, and a crash keeps the old or the new one."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with open(f"{file}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        text = file.read_text(encoding="ascii", errors="replace").strip() if file.exists() else ""
        sound = text.isdecimal() and len(text) <= _MAX_DIGITS
        epoch = int(text) + 1 if sound else now_ns
        fresh = file.with_name(f"{file.name}.new")
        with fresh.open("w", encoding="ascii") as out:
            out.write(f"{epoch}\n")
            out.flush()
            os.fsync(out.fileno())
        fresh.replace(file)
    return epoch
