"""Questions beyond the report: what would help, what differs."""
