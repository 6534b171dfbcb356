"""Replay: a stored run as a file, by which it can be executed again."""
