"""Importers of other tools' traces, one per format; `format.py` has what they share."""
