"""What the core asks of its databases: units of work, their SQL, and how they can fail."""
