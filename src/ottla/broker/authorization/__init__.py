"""Who may ask what: one table of APIs, resources and operations, and what carries it out."""
