"""From runs and traces to answers."""
