"""``python -m flyball_cli.demo.leash PARENT COMMAND ...``: a ``flyball`` command that does not outlive its parent."""

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1


def main() -> None:
    """Tie this process to its parent, if the system supports that, then run the command."""
    parent = int(sys.argv.pop(1))
    if sys.platform == "linux":
        # SIGKILL, because the embedded broker died with the parent: an orderly end would wait for it.
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:  # the parent died before prctl took effect
            sys.exit(1)
    from flyball_cli.start import main as flyball

    flyball()


if __name__ == "__main__":
    main()
