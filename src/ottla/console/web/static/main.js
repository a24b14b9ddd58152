// Starts what a page has need of.
