"""Definitions of the numbers of a run, by subject."""
