"""Pipelines: one Python file, past and future by the same code.

`declaring` and `topics` are what a file contains; `inputs` → the file's function → `outputs` is
what is done with it, as a stream (`running`), over the past (`past`), or over nothing (`checking`).
"""
