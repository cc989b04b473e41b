"""What a trace tells without a run."""
