"""The composition root: settings and command line."""
