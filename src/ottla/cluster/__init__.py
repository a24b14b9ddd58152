"""The cluster: its immutable image, the controller that changes it, and the feed of changes."""
