"""Traces of coding-agent sessions: the format, and all that can be known without a network."""
