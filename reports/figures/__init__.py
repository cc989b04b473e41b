"""The charts of a run, by subject."""
