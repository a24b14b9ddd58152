"""An array of structs of fixed width, kept as its bytes.

Some messages have thousands of small structs that are nothing but numbers (what a share group says
of its records). Declared as `Sequence[...]`, such an array is read as one slice, and its elements
are made only for who asks for them. So is one whose elements have lists, if each of these has one
byte. A writer takes `Rows` and any other sequence of structs.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar, overload

if TYPE_CHECKING:
    from .schema import Struct

S = TypeVar("S", bound="Struct")


class Layout(NamedTuple):
    """How the elements of one class lie in their bytes."""

    one: struct.Struct
    names: tuple[str, ...]
    lists: frozenset[str]  # the names of the fields that are lists of one number
    marks: tuple[tuple[int, int], ...]  # where which byte must be in each element


@cache
def layout_of(cls: type[Struct]) -> Layout:
    """One element: numbers and lists of one byte, behind them no tagged fields (KIP-482)."""
    codes, lists, marks = ">", set(), []
    for field in cls.__schema__.fields:
        code = getattr(field.kind, "code", None)
        if code is None or field.tag is not None or field.first or (field.many and code != "b"):
            raise TypeError(f"{cls.__name__}.{field.name} has no fixed width")
        if field.many:
            lists.add(field.name)
            marks.append((struct.calcsize(codes), 2))  # a list of one, as its length is written
            codes += "x"
        codes += "s" if field.many else code
    marks.append((struct.calcsize(codes), 0))
    names = tuple(field.name for field in cls.__schema__.fields)
    return Layout(struct.Struct(codes + "x"), names, frozenset(lists), tuple(marks))


class Rows(Sequence[S], Generic[S]):
    """Looks like a list of structs; `data` are their bytes."""

    __slots__ = ("cls", "data")

    def __init__(self, cls: type[S], data: bytes) -> None:
        self.cls = cls
        self.data = data

    def __len__(self) -> int:
        return len(self.data) // layout_of(self.cls).one.size

    def __iter__(self) -> Iterator[S]:
        return map(self._made, self.values())

    def values(self) -> Iterator[tuple[Any, ...]]:
        """The numbers of each element; a list of one is a byte."""
        return layout_of(self.cls).one.iter_unpack(self.data)

    @overload
    def __getitem__(self, index: int) -> S: ...

    @overload
    def __getitem__(self, index: slice) -> Rows[S]: ...

    def __getitem__(self, index: int | slice) -> S | Rows[S]:
        width = layout_of(self.cls).one.size
        if isinstance(index, slice):
            found = [self.data[at * width : (at + 1) * width] for at in range(len(self))[index]]
            return Rows(self.cls, b"".join(found))
        at = range(len(self))[index] * width
        return self._made(layout_of(self.cls).one.unpack_from(self.data, at))

    def _made(self, values: tuple[Any, ...]) -> S:
        layout = layout_of(self.cls)
        fields = dict(zip(layout.names, values, strict=True))
        for name in layout.lists:
            fields[name] = list(struct.unpack("b", fields[name]))
        return self.cls(**fields)

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
    layout = layout_of(cls)
    assert not layout.lists, f"{cls.__name__} has no fixed width"
    pack = layout.one.pack
    return b"".join(pack(*(getattr(each, name) for name in layout.names)) for each in rows)
