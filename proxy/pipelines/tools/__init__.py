"""What a model may ask for, run in the proxy."""
