"""Capturing live traffic of coding agents into traces."""
