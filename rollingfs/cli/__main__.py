"""``python -m rollingfs.cli``."""

from rollingfs.cli import main

if __name__ == "__main__":
    main()
