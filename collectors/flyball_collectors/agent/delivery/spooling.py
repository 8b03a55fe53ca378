"""The spool of messages that Kafka does not accept, by the agent's configuration."""

import logging
from pathlib import Path

from flyball_collectors.agent.identity import file_name, state_folder
from flyball_collectors.spool import Spool
from flyball_contracts.config import AgentConfig

_LOG = logging.getLogger(__name__)


def spool_folder(config: AgentConfig, node: str) -> Path:
    """Folder of this node's spool, in the state folder."""
    return state_folder(config) / f"spool-{file_name(node)}"


def open_spool(config: AgentConfig, node: str) -> Spool | None:
    """Open the spool; ``None``, with a warning, where the folder cannot be used: then only memory bridges an outage."""
    if not config.spool_bytes:
        return None
    folder = spool_folder(config, node)
    try:
        return Spool(folder, config.spool_bytes)
    except BlockingIOError:
        _LOG.warning(
            "another agent of node %s runs, and has the spool in %s: workers accept the frames of the one that started "
            "last alone, even once it has ended. Unless the other is about to end, stop this one and restart the other",
            node,
            folder,
        )
        return None
    except OSError as error:
        _LOG.warning(
            "there is no spool in %s (%s); what memory cannot hold while Kafka is away is dropped: set agent.state_dir "
            "to a folder that the agent may write to, or agent.spool_bytes to 0",
            folder,
            error.strerror,
        )
        return None
