"""A simulated inference engine: real HTTP, prefix cache and queue; simulated compute."""
