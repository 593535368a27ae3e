"""A realistic load on an OpenAI-compatible server, kept as a named run."""
