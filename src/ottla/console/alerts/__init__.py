"""Rules on series, and how they are sent."""
