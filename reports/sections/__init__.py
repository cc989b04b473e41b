"""The sections of a run's report, each from its own part of the numbers."""
