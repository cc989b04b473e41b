"""Commands of the recorder."""
