"""Spans of other tools made into the same stages and the same row of ``requests``."""
