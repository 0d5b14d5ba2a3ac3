"""Who asks and what they may do: API keys, roles, rights, rate limits."""
