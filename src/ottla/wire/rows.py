"""An array of structs of fixed width, kept as its bytes.

Some messages have thousands of small structs that are nothing but numbers (what a share group says
of its records). Declared as `Sequence[...]`, such an array is read as one slice, and its elements
are made only for who asks for them. A writer takes `Rows` and any other sequence of structs.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload

if TYPE_CHECKING:
    from .schema import Struct

S = TypeVar("S", bound="Struct")


@cache
def layout_of(cls: type[Struct]) -> struct.Struct:
    """One element: numbers only, behind them an empty set of tagged fields (KIP-482)."""
    codes = []
    for field in cls.__schema__.fields:
        code = getattr(field.kind, "code", None)
        if code is None or field.many or field.tag is not None or field.first:
            raise TypeError(f"{cls.__name__}.{field.name}: only numbers can be rows")
        codes.append(code)
    return struct.Struct(">" + "".join(codes) + "x")


@cache
def names_of(cls: type[Struct]) -> tuple[str, ...]:
    return tuple(field.name for field in cls.__schema__.fields)


class Rows(Sequence[S], Generic[S]):
    """Looks like a list of structs; `data` are their bytes."""

    __slots__ = ("cls", "data")

    def __init__(self, cls: type[S], data: bytes) -> None:
        self.cls = cls
        self.data = data

    def __len__(self) -> int:
        return len(self.data) // layout_of(self.cls).size

    def __iter__(self) -> Iterator[S]:
        return map(self._made, layout_of(self.cls).iter_unpack(self.data))

    @overload
    def __getitem__(self, index: int) -> S: ...

    @overload
    def __getitem__(self, index: slice) -> Rows[S]: ...

    def __getitem__(self, index: int | slice) -> S | Rows[S]:
        width = layout_of(self.cls).size
        if isinstance(index, slice):
            found = [self.data[at * width : (at + 1) * width] for at in range(len(self))[index]]
            return Rows(self.cls, b"".join(found))
        at = range(len(self))[index] * width
        return self._made(layout_of(self.cls).unpack_from(self.data, at))

    def _made(self, values: tuple[Any, ...]) -> S:
        return self.cls(**dict(zip(names_of(self.cls), values, strict=True)))

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Rows):
            return self.cls is other.cls and self.data == other.data
        return list(self) == other

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return repr(list(self))


def row_bytes(rows: Sequence[Struct], cls: type[Struct]) -> bytes:
    """The bytes of an array that was read or is to be written, whichever form it has."""
    if isinstance(rows, Rows):
        return rows.data
    pack, names = layout_of(cls).pack, names_of(cls)
    return b"".join(pack(*(getattr(each, name) for name in names)) for each in rows)
