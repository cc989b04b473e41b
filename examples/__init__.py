"""Traces that come with aitrace."""
