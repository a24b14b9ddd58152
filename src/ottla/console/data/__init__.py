"""Records: browse, tail, filter, SQL, produce, replay, download."""
