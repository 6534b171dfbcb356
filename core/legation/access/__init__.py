"""Access control: keys, tokens, scopes, and the decision."""
