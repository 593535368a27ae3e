"""Vectors of texts: by a local model or by an OpenAI-compatible endpoint."""
