"""Ottla's tests; a package so that `tests.needs` and `tests.apache` can be imported anywhere."""
