"""Writing batches to the store, with retries and a count of every loss."""
