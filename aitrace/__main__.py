"""I/O: `python -m aitrace`."""

from aitrace.cli import main

if __name__ == "__main__":
    main()
