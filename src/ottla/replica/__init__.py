"""A partition as this broker holds it: its log, what the leader may show, and who waits for it."""
