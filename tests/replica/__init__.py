"""Tests of src/ottla/replica."""
