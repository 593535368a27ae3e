"""Reading streams as they pass: framing, and what each chunk means."""
