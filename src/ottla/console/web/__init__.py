"""Pages, templates and what the browser loads."""
