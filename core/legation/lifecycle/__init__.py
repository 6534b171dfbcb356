"""The life of a process: one bounded round where it has no jobs, and its end in order."""
