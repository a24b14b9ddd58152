"""The pages, each from a cluster's picture."""
