"""``python -m flyball_cli`` is the same as ``flyball``."""

from flyball_cli.start import main

if __name__ == "__main__":
    main()
