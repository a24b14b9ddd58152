"""Tests of src/ottla/broker."""
