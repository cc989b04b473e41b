"""Runs set side by side: same plan, calls in pairs, and how much of a difference is more than noise."""
