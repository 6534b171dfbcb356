"""The agents, teams, models and channels that a platform hosts, made from its configuration."""
