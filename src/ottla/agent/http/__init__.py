"""Events that come as HTTP requests: what a request is, and how it becomes events."""
