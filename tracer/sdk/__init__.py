"""Decorators and context managers for an application's own stages."""
