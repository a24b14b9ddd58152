"""The same as JSON, with OpenAPI and tokens."""
