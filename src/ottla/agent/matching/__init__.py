"""Regular expressions of the agent's file: none of them may hold up the agent."""
