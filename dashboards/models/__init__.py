"""What the answers look like: frozen pydantic models, which are also the JSON documents."""
