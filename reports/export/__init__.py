"""What a run becomes for other programs; docs/export.md describes each form."""
