"""One request: its marks while it runs, its record when it is done, its spans."""
