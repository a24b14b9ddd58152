"""Share groups on the leader of a partition: who has which records, and what is kept of it."""
