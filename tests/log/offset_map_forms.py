"""The forms of the offset map: plain Python, and compiled where it was built."""

import pytest

from ottla.log.offset_map import COMPILED_MODULE, FORM, OffsetMap
from ottla.seams.compiled import compiled_module

compiled = compiled_module(COMPILED_MODULE, FORM)
COMPILED = compiled.OffsetMap if compiled is not None else None
FORMS = [
    pytest.param(OffsetMap, id="plain"),
    pytest.param(
        COMPILED,
        id="compiled",
        marks=pytest.mark.skipif(COMPILED is None, reason="not compiled here; try: make compile"),
    ),
]
