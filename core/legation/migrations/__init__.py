"""The schema of the platform's databases: its versions, its ledger, and the moves between them."""
