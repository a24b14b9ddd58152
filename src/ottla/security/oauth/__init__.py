"""Tokens of OAUTHBEARER: checked by brokers, fetched by clients."""
