"""The store: its address, its client, its schema by numbered migrations."""
