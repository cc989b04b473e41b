"""The prefix cache: what was reported, what was possible, and where the difference went."""
