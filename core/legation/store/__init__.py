"""The store: units of work, their SQL, and their failures."""
