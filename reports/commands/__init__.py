"""Commands of the command line, one per file, attached by `aitrace/cli.py` by name."""
