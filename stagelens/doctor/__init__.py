"""What `stagelens doctor` looks at, and what it says."""
