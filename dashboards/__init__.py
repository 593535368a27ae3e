"""The way out of the store: queries, HTTP API, terminal report."""
