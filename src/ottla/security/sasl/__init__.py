"""SASL mechanisms, both sides of each: tokens in, tokens out."""
