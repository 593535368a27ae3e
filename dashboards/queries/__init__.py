"""Questions to the store: plain functions from filters to frozen models."""
