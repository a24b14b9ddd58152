"""Declare a Kafka message once, as a class; read and write it in every version.

A declaration is an ordinary class. Its annotations name wire types; the right-hand side is the
default, or says from which version on the field exists:

    class Broker(Struct):
        node_id: Int32 = 0
        rack: NullableString = since(1, default=None)

    class MetadataResponse(Struct, key=3, versions=(0, 13), flexible=9):
        brokers: list[Broker] = []
        ...

The metaclass makes it a slotted class with keyword arguments, which type checkers know through
`dataclass_transform`. An array is a `list[...]`, or a `Sequence[...]` where it is to be kept as its
bytes (rows.py). `reader(cls, version)` and `writer(cls, version)` give functions compiled
for exactly that version on first use (see compiler.py); `python -m ottla.wire show fetch 12`
prints them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import (
    Annotated,
    Any,
    ClassVar,
    Generic,
    NamedTuple,
    Protocol,
    TypeVar,
    Union,
    cast,
    dataclass_transform,
    get_args,
    get_origin,
)

from .malformed import Buffer, UnsupportedVersion
from .out import Out, RecordsToWrite

FOREVER = 32767
NEVER = FOREVER + 1
NO_UUID = bytes(16)


class Fixed(NamedTuple):
    """A value of fixed width: the letter that `struct` knows it by, and its zero."""

    code: str
    zero: Any


class Text(NamedTuple):
    """A UTF-8 string after its length."""

    zero: Any = ""


class Blob(NamedTuple):
    """Bytes after their length; `records` are handed out as a view and taken from files too."""

    records: bool
    zero: Any


Bool = Annotated[bool, Fixed("?", False)]
Int8 = Annotated[int, Fixed("b", 0)]
Int16 = Annotated[int, Fixed("h", 0)]
Int32 = Annotated[int, Fixed("i", 0)]
Int64 = Annotated[int, Fixed("q", 0)]
Uint16 = Annotated[int, Fixed("H", 0)]
Uint32 = Annotated[int, Fixed("I", 0)]
Float64 = Annotated[float, Fixed("d", 0.0)]
Uuid = Annotated[bytes, Fixed("16s", NO_UUID)]
String = Annotated[str, Text()]
NullableString = Annotated[str | None, Text()]
Bytes = Annotated[bytes, Blob(False, b"")]
NullableBytes = Annotated[bytes | None, Blob(False, b"")]
Records = Annotated[memoryview | bytes | None, Blob(True, None)]
RecordsOut = Annotated[RecordsToWrite | None, Blob(True, None)]
NonNullRecordsOut = Annotated[RecordsToWrite, Blob(True, b"")]


class Mark(NamedTuple):
    """What stands right of a field: versions, tag and default."""

    first: int
    last: int
    nullable: int
    tag: int | None
    default: Any


def since(first: int, last: int = FOREVER, *, nullable: int = 0, default: Any = ...) -> Any:
    """The field exists from version `first` to `last` and may be null from `nullable` on."""
    return Mark(first, last, nullable, None, default)


def tagged(tag: int, *, since: int, default: Any = ...) -> Any:
    """The field is optional on the wire: sent behind its number unless it is the default."""
    return Mark(since, FOREVER, 0, tag, default)


class Field(NamedTuple):
    """One field of a message, as the compiler needs it."""

    name: str
    kind: Fixed | Text | Blob | type[Struct]
    many: bool
    first: int
    last: int
    nullable: int  # the first version in which null is legal
    tag: int | None
    default: Any  # a list or a Struct stands for a new one like it
    packed: bool = False  # an array that is kept as its bytes (rows.py)

    def live(self, version: int) -> bool:
        """Whether the field has its place in this version's bytes."""
        return self.tag is None and self.first <= version <= self.last

    def live_tag(self, version: int) -> bool:
        """Whether the field may be among this version's tagged fields."""
        return self.tag is not None and self.first <= version <= self.last

    @property
    def fresh(self) -> str | None:
        """The text that makes a new default where it must not be shared, else None."""
        if isinstance(self.default, list):
            return "[]"
        return f"{type(self.default).__name__}()" if isinstance(self.default, Struct) else None


class Schema(NamedTuple):
    """What is declared about a class as a whole; a mere part of messages has no versions."""

    key: int | None
    versions: tuple[int, int] | None
    flexible: int
    fields: tuple[Field, ...]


@dataclass_transform(kw_only_default=True, eq_default=True)
class StructType(type):
    """Turns a declaration into a slotted class."""

    def __new__(
        mcls,
        name: str,
        bases: tuple[type, ...],
        namespace: dict[str, Any],
        *,
        key: int | None = None,
        versions: tuple[int, int] | None = None,
        flexible: int = NEVER,
    ) -> StructType:
        if not bases:
            return super().__new__(mcls, name, bases, namespace | {"__slots__": ()})
        fields = tuple(
            declared(field, annotation, namespace.pop(field, ...))
            for field, annotation in annotations_of(namespace).items()
        )
        namespace["__slots__"] = tuple(field.name for field in fields)
        namespace["__schema__"] = Schema(key, versions, flexible, fields)
        namespace["__hash__"] = None
        namespace |= methods(name, fields)
        return super().__new__(mcls, name, bases, namespace)


class Struct(metaclass=StructType):
    """The base of every declared message and of every part of one."""

    __schema__: ClassVar[Schema]

    def __repr__(self) -> str:
        fields = type(self).__schema__.fields
        values = ", ".join(f"{f.name}={getattr(self, f.name, '<unset>')!r}" for f in fields)
        return f"{type(self).__name__}({values})"


def annotations_of(namespace: dict[str, Any]) -> dict[str, Any]:
    """The annotations in a class body; Python 3.14 keeps a function that makes them instead."""
    made = namespace.get("__annotations__")
    if made is None:
        annotate = namespace.get("__annotate_func__") or namespace.get("__annotate__")
        made = annotate(1) if annotate else {}
    return cast(dict[str, Any], made)


def declared(name: str, annotation: Any, right: Any) -> Field:
    """One line of a declaration as a Field."""
    mark = right if isinstance(right, Mark) else Mark(0, FOREVER, 0, None, right)
    annotation, may_be_null = without_none(annotation)
    packed = get_origin(annotation) is Sequence
    many = packed or get_origin(annotation) is list
    inner = get_args(annotation)[0] if many else annotation
    kind = inner
    if hasattr(inner, "__metadata__"):
        kind = inner.__metadata__[0]
        may_be_null |= not many and type(None) in get_args(get_args(inner)[0])
    elif not (isinstance(inner, type) and issubclass(inner, Struct)):
        raise TypeError(f"{name}: {annotation!r} is not a wire type")
    default = mark.default
    if default is ...:
        default = [] if many else kind() if isinstance(kind, type) else kind.zero
    nullable = max(mark.nullable, mark.first) if may_be_null else NEVER
    return Field(name, kind, many, mark.first, mark.last, nullable, mark.tag, default, packed)


def without_none(annotation: Any) -> tuple[Any, bool]:
    """`X` and whether null was allowed, from `X | None` or plain `X`."""
    if hasattr(annotation, "__metadata__") or type(None) not in get_args(annotation):
        return annotation, False
    rest = tuple(part for part in get_args(annotation) if part is not type(None))
    return (rest[0] if len(rest) == 1 else Union[rest]), True  # noqa: UP007


def methods(name: str, fields: tuple[Field, ...]) -> dict[str, Any]:
    """`__init__` and `__eq__`, written out for these fields."""
    arguments = "".join(
        f", {f.name}=" + ("MISSING" if f.fresh else f"DEFAULT_{f.name}") for f in fields
    )
    lines = [f"def __init__(self, *{arguments}):"] if fields else ["def __init__(self): pass"]
    for f in fields:
        value = f"{f.fresh} if {f.name} is MISSING else {f.name}" if f.fresh else f.name
        lines.append(f"    self.{f.name} = {value}")
    same = " and ".join(f"self.{f.name} == other.{f.name}" for f in fields) or "True"
    lines.append("def __eq__(self, other):")
    lines.append("    if type(self) is not type(other): return NotImplemented")
    lines.append(f"    return {same}")
    scope: dict[str, Any] = {"MISSING": object()}
    for f in fields:
        scope[f"DEFAULT_{f.name}"] = f.default
        if isinstance(f.default, Struct):
            scope[type(f.default).__name__] = type(f.default)
    exec(compile("\n".join(lines), f"<{name} methods>", "exec"), scope)
    return {method: scope[method] for method in ("__init__", "__eq__")}


S = TypeVar("S", bound=Struct)
S_co = TypeVar("S_co", bound=Struct, covariant=True)
S_contra = TypeVar("S_contra", bound=Struct, contravariant=True)


class RequestFor(Struct, Generic[S_co]):
    """The base of every request; the type argument is its response, for type checkers only."""


class Reader(Protocol, Generic[S_co]):
    """Reads one message that starts at `pos`; gives it and the position after it."""

    def __call__(self, buf: Buffer, pos: int = 0) -> tuple[S_co, int]: ...


class Writer(Protocol, Generic[S_contra]):
    """Appends one message to `out` and gives `out` back."""

    def __call__(self, message: S_contra, out: Out) -> Out: ...


READERS: dict[tuple[type, int], Any] = {}
WRITERS: dict[tuple[type, int], Any] = {}


def reader(cls: type[S], version: int) -> Reader[S]:
    """The function that reads `cls` in this version; raises only `MalformedMessage`."""
    made = READERS.get((cls, version))
    if made is None:
        from .compiler import compile_reader

        made = READERS[cls, version] = compile_reader(cls, supported(cls, version))
    return cast(Reader[S], made)


def writer(cls: type[S], version: int) -> Writer[S]:
    """The function that writes `cls` in this version; raises only `UnwritableMessage`."""
    made = WRITERS.get((cls, version))
    if made is None:
        from .compiler import compile_writer

        made = WRITERS[cls, version] = compile_writer(cls, supported(cls, version))
    return cast(Writer[S], made)


def supported(cls: type[Struct], version: int) -> int:
    versions = cls.__schema__.versions
    if versions is None:
        raise UnsupportedVersion(f"{cls.__name__} is a part of other messages, not one of its own")
    if not versions[0] <= version <= versions[1]:
        raise UnsupportedVersion(
            f"{cls.__name__} has versions {versions[0]} to {versions[1]}, not {version}"
        )
    return version
