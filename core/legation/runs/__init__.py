"""Runs: started, executed under a lease, followed; one mechanism for every way to ask."""
