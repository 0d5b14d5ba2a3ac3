"""Authentication and authorisation: API keys, roles, rights, rate limits."""
