"""`make demo-agent`: a log grows and is rotated, its agent dies, and no line is lost."""
