"""Driving live LLM endpoints with recorded sessions, and the built-in engine."""
