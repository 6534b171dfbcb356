"""The diagnosis of a platform, as `legation doctor` makes it: from facts, which others gather.

Each module judges facts of one sort: it takes values and yields findings (`legation.findings`).
"""
