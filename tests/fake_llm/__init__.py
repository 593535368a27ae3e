"""A fake LLM server on a real socket: exact bytes at exact times."""
