"""What a platform runs on a node before it takes work again."""

from flyball_contracts.config.base import Section


class CheckConfig(Section, frozen=True):
    """The check of a closed node: ``command`` has found it well where it ends with status 0 within half an hour.

    Driver ``kubernetes`` runs it as a Job with ``image`` on the GPUs of the node that are free, ``slurm`` as a batch
    job in a reservation that holds nothing else, and has no use for an image.
    """

    image: str = ""
    command: tuple[str, ...] = ("flyball", "doctor", "--burn-in", "60")
