"""The broker: what it answers (`handlers/`), how a frame finds its handler, and the composition."""
