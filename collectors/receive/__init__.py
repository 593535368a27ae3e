"""Receiving OTLP: bodies in, checked rows out, and an honest answer."""
