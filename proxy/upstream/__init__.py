"""Forwarding to any OpenAI-compatible server, byte for byte, with true stage times."""
