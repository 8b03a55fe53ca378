"""Configuration of the check that a platform runs on a node before it takes work again."""

from flyball_contracts.config.base import Section


class CheckConfig(Section, frozen=True):
    """The check of a closed node: it passes if ``command`` ends with status 0 within half an hour.

    Driver ``kubernetes`` runs it as a Job with ``image`` on the free GPUs of the node, ``slurm`` as a batch job in an
    exclusive reservation, without an image.
    """

    image: str = ""
    command: tuple[str, ...] = ("flyball", "doctor", "--burn-in", "60")
