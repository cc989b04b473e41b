"""A run played by several processes: what they are told, and what they tell."""
