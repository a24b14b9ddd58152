"""Users, roles, sessions, tokens, audit."""
