"""The cluster: its immutable picture, the controller that changes it, and the feed of changes."""
