"""Who asks, and what they may do: keys, tokens, scopes, the decision."""
