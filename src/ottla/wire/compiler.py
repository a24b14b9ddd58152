"""Writes the Python text of one reader or writer for one message in one version, and compiles it.

Strategy: every run of fixed-width fields, together with the length byte or tag count that ends
it, is one `struct` call, and values go straight into the slots of the object. The text has no
loops but those over arrays and no branches but those the bytes demand. It goes into `linecache`,
so a traceback shows its lines.

What keeps a reader safe with hostile bytes: `pos` only ever grows, a null or negative length is
refused first, a count that cannot fit into the bytes left is refused before anything is
allocated, as is one that brings all arrays together above a limit, and one check at the end
covers every slice that ran over. Everything else that can go wrong is turned into
`MalformedMessage`.
"""

from __future__ import annotations

import linecache
import struct
from typing import Any

from . import runtime, varint
from .malformed import MalformedMessage, UnwritableMessage
from .rows import Rows, layout_of
from .schema import Blob, Field, Fixed, Struct, Text

Kind = Fixed | Text | Blob | type[Struct]


def compile_reader(cls: type[Struct], version: int) -> Any:
    source = read_source(cls, version)
    return source.compiled(f"<read {cls.__name__} v{version}>", "read")


def compile_writer(cls: type[Struct], version: int) -> Any:
    source = write_source(cls, version)
    return source.compiled(f"<write {cls.__name__} v{version}>", "write")


def read_source(cls: type[Struct], version: int) -> ReadSource:
    """The reader's text, ready to be compiled or shown."""
    source = ReadSource(cls, version)
    source.struct(cls, "message")
    source.flush()
    source.put("if pos > size: raise too_short(LABEL, size)")
    source.put("return message, pos")
    source.close("(struct_error, IndexError, ValueError)", "unreadable")
    return source


def write_source(cls: type[Struct], version: int) -> WriteSource:
    """The writer's text, ready to be compiled or shown."""
    source = WriteSource(cls, version)
    source.struct(cls, "message")
    source.flush()
    source.put("return out")
    source.close("(struct_error, TypeError, AttributeError, ValueError)", "unwritable")
    return source


class Source:
    """Lines of text, the names they use, and the run of fixed-width fields not yet written."""

    def __init__(self, cls: type[Struct], version: int, head: list[str]) -> None:
        self.version = version
        self.flexible = version >= cls.__schema__.flexible
        self.label = f"{cls.__name__} version {version}"
        self.lines = head
        self.depth = 2
        self.taken = {"buf", "end", "items", "message", "out", "pos", "problem", "size"}
        self.run: list[tuple[str, str]] = []
        self.scope: dict[str, Any] = {
            "LABEL": self.label,
            "struct_error": struct.error,
            "MalformedMessage": MalformedMessage,
            "UnwritableMessage": UnwritableMessage,
            "new": object.__new__,
            "uvarint": varint.read_uvarint,
            "put_uvarint": varint.put_uvarint,
            "Rows": Rows,
        }
        for name in RUNTIME:
            self.scope[name] = getattr(runtime, name)

    def put(self, line: str) -> None:
        self.lines.append("    " * self.depth + line)

    def name(self, stem: str) -> str:
        """A variable not used before in this text."""
        name, count = stem, 1
        while name in self.taken or name in self.scope:
            count += 1
            name = f"{stem}_{count}"
        self.taken.add(name)
        return name

    def constant(self, name: str, value: Any) -> str:
        self.scope[name] = value
        return name

    def close(self, errors: str, verb: str) -> None:
        self.depth = 1
        self.put(f"except {errors} as problem:")
        self.put(f"    raise {verb}(LABEL, problem) from problem")

    def text(self) -> str:
        return "\n".join(self.lines) + "\n"

    def compiled(self, file: str, function: str) -> Any:
        text = self.text()
        linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
        exec(compile(text, file, "exec"), self.scope)
        return self.scope[function]

    def bytes_min(self, kind: Kind, many: bool = False) -> int:
        """The fewest bytes that a value of this kind takes in this version."""
        if many:
            return 1 if self.flexible else 4
        if isinstance(kind, Fixed):
            return struct.calcsize(">" + kind.code)
        if isinstance(kind, Text | Blob):
            return 1 if self.flexible else 2 if isinstance(kind, Text) else 4
        inside = (f for f in kind.__schema__.fields if f.live(self.version))
        return int(self.flexible) + sum(
            1
            if isinstance(f.kind, type) and not f.many and f.nullable <= self.version
            else self.bytes_min(f.kind, f.many)
            for f in inside
        )

    def gone_default(self, field: Field) -> str:
        """The text of the value of a field that this version does not carry."""
        if isinstance(field.default, Struct):
            self.constant(type(field.default).__name__, type(field.default))
        return field.fresh or repr(field.default)


RUNTIME = (
    *("ITEMS_MAX", "READY", "long_string", "null_value", "pack_many", "put_records", "read_many"),
    *("records_bytes", "string_too_long", "too_many", "too_many_items", "too_short"),
    *("unreadable", "unwritable", "wrong_tag"),
)


class ReadSource(Source):
    """The text of a reader."""

    def __init__(self, cls: type[Struct], version: int) -> None:
        head = ["def read(buf, pos=0):", f'    """Read {cls.__name__}, version {version}."""']
        super().__init__(cls, version, [*head, "    try:", "        size = len(buf); items = 0"])

    def flush(self) -> None:
        if not self.run:
            return
        codes = "".join(code for code, _ in self.run)
        layout = struct.Struct(">" + codes)
        unpack = self.constant("unpack_" + codes.replace("?", "B1_"), layout.unpack_from)
        targets = ", ".join(target for _, target in self.run) + "," * (len(self.run) == 1)
        self.put(f"{targets} = {unpack}(buf, pos); pos += {layout.size}")
        self.run.clear()

    def value(self, field: Field, kind: Kind, target: str, many: bool) -> None:
        nullable = field.nullable <= self.version and (many or not field.many)
        where = repr(f"{self.label}: {field.name}")
        if many:
            self.array(field, target, nullable, where)
        elif isinstance(kind, Fixed):
            self.run.append((kind.code, target))
        elif isinstance(kind, Text | Blob):
            self.sized(field, kind, target, nullable, where)
        elif nullable:
            mark = self.name(f"{field.name}_mark")
            self.run.append(("b", mark))
            self.flush()
            # Behind a tag the mark is an unsigned number, elsewhere a signed one.
            null = f"{mark} < 0" if field.tag is None else f"{mark} < 1"
            self.put(f"if {null}: {target} = None")
            self.put("else:")
            self.depth += 1
            self.struct(kind, target)
            self.flush()
            self.depth -= 1
        else:
            self.struct(kind, target)

    def length(self, stem: str, legacy: str, where: str) -> tuple[str, str, str]:
        """Read a length: its variable, the text for it, the text that is true for null."""
        n = self.name(f"n_{stem}")
        self.run.append(("B" if self.flexible else legacy, n))
        self.flush()
        if not self.flexible:
            return n, n, f"{n} < 0"
        if legacy == "h":
            self.put(f"if {n} > 127: {n}, pos = long_string(buf, pos - 1, {where})")
        else:
            self.put(f"if {n} > 127: {n}, pos = uvarint(buf, pos - 1)")
        return n, f"{n} - 1", f"{n} == 0"

    def sized(
        self, field: Field, kind: Text | Blob, target: str, nullable: bool, where: str
    ) -> None:
        _, length, null = self.length(field.name, "h" if isinstance(kind, Text) else "i", where)
        # Bytes that are not UTF-8 become U+FFFD, as in Kafka: the name is then unknown or not
        # allowed, which has its own answer.
        value = f"str(buf[pos:end], 'utf-8', {runtime.REPLACING!r})"
        if isinstance(kind, Blob):
            value = "buf[pos:end]" if kind.records else "bytes(buf[pos:end])"
        take = f"end = pos + {length}; {target} = {value}; pos = end"
        if nullable:
            self.put(f"if {null}: {target} = None")
            self.put(f"else: {take}")
        else:
            self.put(f"if {null}: raise null_value({where})")
            self.put(take)

    def array(self, field: Field, target: str, nullable: bool, where: str) -> None:
        n, count, null = self.length(field.name, "i", where)
        kind = field.kind
        if nullable:
            self.put(f"if {null}: {target} = None")
            self.put("else:")
            self.depth += 1
        else:
            self.put(f"if {null}: raise null_value({where})")
        least = max(self.bytes_min(kind), 1)
        need = (
            count if least == 1 else f"({count}) * {least}" if self.flexible else f"{n} * {least}"
        )
        self.put(f"if {need} > size - pos: raise too_many({where}, {count}, size - pos)")
        if isinstance(kind, Fixed) and kind.code in runtime.RUNS:
            code = kind.code
            table = (runtime.READ_COMPACT if self.flexible else runtime.READ)[code]
            ready = self.constant(f"READ_{code}", table)
            many = f"read_many({code!r}, {count})"
            self.put(f"{target} = list(({ready}[{n}] if {n} < READY else {many})(buf, pos))")
            self.put(f"pos += {need}")
        else:
            self.elements(field, target, count)
        if nullable:
            self.depth -= 1

    def elements(self, field: Field, target: str, count: str) -> None:
        self.put(f"if (items := items + {count}) > ITEMS_MAX: raise too_many_items(LABEL)")
        if field.packed:
            assert self.flexible, f"{self.label}: {field.name} has no tagged fields"
            layout = layout_of(field.kind)
            width = layout.one.size
            rows = self.name(f"{field.name}_rows")
            cls = self.constant(field.kind.__name__, field.kind)  # type: ignore[union-attr]
            self.put(f"{rows} = bytes(buf[pos:pos + ({count}) * {width}])")
            # Tagged fields are known to no reader here; elements that have any are read one by one.
            marks = (f"{rows}[{at}::{width}].count({mark}) == {count}" for at, mark in layout.marks)
            self.put(f"if {' and '.join(marks)}:")
            self.put(f"    {target} = Rows({cls}, {rows}); pos += ({count}) * {width}")
            self.put("else:")
            self.depth += 1
        items = self.name(field.name)
        self.put(f"{target} = {items} = []")
        self.put(f"for _ in range({count}):")
        self.depth += 1
        item = self.name(f"{field.name}_item")
        self.value(field, field.kind, item, False)
        self.flush()
        self.put(f"{items}.append({item})")
        self.depth -= 1
        if field.packed:
            self.depth -= 1

    def struct(self, cls: type[Struct], target: str) -> None:
        made = f"new({self.constant(cls.__name__, cls)})"
        if target.isidentifier():
            self.put(f"{target} = {made}")
        else:
            part = self.name(target.rpartition(".")[2])
            self.put(f"{target} = {part} = {made}")
            target = part
        fields = cls.__schema__.fields
        for field in fields:
            if not field.live(self.version):
                self.put(f"{target}.{field.name} = {self.gone_default(field)}")
        for field in fields:
            if field.live(self.version):
                self.value(field, field.kind, f"{target}.{field.name}", field.many)
        if self.flexible:
            self.tags(target, [field for field in fields if field.live_tag(self.version)])

    def tags(self, target: str, known: list[Field]) -> None:
        """The tagged fields that end a struct; unknown ones are skipped, as KIP-482 asks."""
        count, tag, end = self.name("tags"), self.name("tag"), self.name("tag_end")
        self.run.append(("B", count))
        self.flush()
        self.put(f"if {count}:")
        self.depth += 1
        self.put(f"{count}, pos = uvarint(buf, pos - 1)")
        self.put(f"for _ in range({count}):")
        self.depth += 1
        self.put(f"{tag}, pos = uvarint(buf, pos); {end}, pos = uvarint(buf, pos); {end} += pos")
        for position, field in enumerate(known):
            self.put(f"{'el' if position else ''}if {tag} == {field.tag}:")
            self.depth += 1
            start = self.name("tag_start")
            self.put(f"{start} = pos")
            self.value(field, field.kind, f"{target}.{field.name}", field.many)
            self.flush()
            where = repr(f"{self.label}: {field.name}")
            wrong = f"wrong_tag({where}, pos - {start}, {end} - {start})"
            self.put(f"if pos != {end}: raise {wrong}")
            self.depth -= 1
        self.put(f"pos = {end}")
        self.depth -= 2


class WriteSource(Source):
    """The text of a writer: the mirror of ReadSource."""

    def __init__(self, cls: type[Struct], version: int) -> None:
        head = ["def write(message, out):", f'    """Write {cls.__name__}, version {version}."""']
        super().__init__(cls, version, [*head, "    try:"])

    def packed(self, run: list[tuple[str, str]]) -> str:
        """The text that packs these fields; an `x` is an empty set of tagged fields."""
        codes = "".join(code for code, _ in run)
        if not codes.strip("x"):
            return repr(bytes(len(codes)))
        pack = self.constant("pack_" + codes.replace("?", "B1_"), struct.Struct(">" + codes).pack)
        return f"{pack}({', '.join(value for code, value in run if code != 'x')})"

    def flush(self) -> None:
        if self.run:
            self.put(f"out += {self.packed(self.run)}")
            self.run.clear()

    def length(self, n: str, legacy: str, where: str) -> None:
        run = list(self.run)
        self.run.clear()
        if not self.flexible:
            self.put(f"out += {self.packed([*run, (legacy, n)])}")
            return
        self.put(f"if {n} < 127: out += {self.packed([*run, ('B', f'{n} + 1')])}")
        if legacy == "h":
            self.put(f"elif {n} > {runtime.STRING_BYTES_MAX}: raise string_too_long({where}, {n})")
        before = f"{self.packed(run)} + " if run else ""
        self.put(f"else: out += {before}put_uvarint({n} + 1)")

    def null(self, legacy: str) -> str:
        return repr(bytes(1) if self.flexible else struct.pack(">" + legacy, -1))

    def value(self, field: Field, kind: Kind, value: str, many: bool) -> None:
        nullable = field.nullable <= self.version and (many or not field.many)
        if many:
            self.array(field, value, nullable)
        elif isinstance(kind, Fixed):
            self.run.append((kind.code, value))
        elif isinstance(kind, Text | Blob):
            self.sized(field, kind, value, nullable)
        elif nullable:
            part = self.name(field.name)
            self.flush()
            null = b"\xff" if field.tag is None else b"\x00"
            self.put(f"if ({part} := {value}) is None: out += {null!r}")
            self.put("else:")
            self.depth += 1
            self.put(f"out += {bytes([1])!r}")
            self.struct(kind, part)
            self.flush()
            self.depth -= 1
        else:
            self.struct(kind, value)

    def sized(self, field: Field, kind: Text | Blob, value: str, nullable: bool) -> None:
        data, n = self.name(field.name), self.name(f"n_{field.name}")
        legacy = "h" if isinstance(kind, Text) else "i"
        where = repr(f"{self.label}: {field.name}")
        encode = ".encode()" if isinstance(kind, Text) else ""
        if nullable:
            self.flush()
            self.put(f"if ({data} := {value}) is None: out += {self.null(legacy)}")
            self.put("else:")
            self.depth += 1
            if encode:
                self.put(f"{data} = {data}{encode}")
        else:
            self.put(f"{data} = {value}{encode}")
        records = isinstance(kind, Blob) and kind.records
        self.put(f"{n} = records_bytes({data})" if records else f"{n} = len({data})")
        self.length(n, legacy, where)
        self.put(f"put_records(out, {data})" if records else f"out += {data}")
        if nullable:
            self.depth -= 1

    def array(self, field: Field, value: str, nullable: bool) -> None:
        items, n = self.name(field.name), self.name(f"n_{field.name}")
        if nullable:
            self.flush()
            self.put(f"if ({items} := {value}) is None: out += {self.null('i')}")
            self.put("else:")
            self.depth += 1
            self.put(f"{n} = len({items})")
        else:
            self.put(f"{items} = {value}; {n} = len({items})")
        self.length(n, "i", "")
        kind = field.kind
        if isinstance(kind, Fixed) and kind.code in runtime.RUNS:
            ready = self.constant(f"PACK_{kind.code}", runtime.PACK[kind.code])
            many = f"pack_many({kind.code!r}, {n})"
            self.put(f"if {n}: out += ({ready}[{n}] if {n} < READY else {many})(*{items})")
        else:
            if field.packed:
                self.put(f"if type({items}) is Rows: out += {items}.data")
                self.put("else:")
                self.depth += 1
            item = self.name(f"{field.name}_item")
            self.put(f"for {item} in {items}:")
            self.depth += 1
            self.value(field, kind, item, False)
            self.flush()
            self.depth -= 1 + field.packed
        if nullable:
            self.depth -= 1

    def struct(self, cls: type[Struct], value: str) -> None:
        if not value.isidentifier():
            part = self.name(value.rpartition(".")[2])
            self.put(f"{part} = {value}")
            value = part
        fields = cls.__schema__.fields
        for field in fields:
            if field.live(self.version):
                self.value(field, field.kind, f"{value}.{field.name}", field.many)
        if not self.flexible:
            return
        known = [field for field in fields if field.live_tag(self.version)]
        if known:
            self.flush()
            self.tags(value, sorted(known, key=lambda field: field.tag or 0))
        else:
            self.run.append(("x", ""))

    def differs(self, held: str, default: Any) -> str:
        """The text that is true if the value is not the default; a struct is looked into."""
        if default is None:
            return f"{held} is not None"
        if not isinstance(default, Struct):
            return f"{held} != {default!r}"
        inside = (self.differs(f"{held}.{f.name}", f.default) for f in default.__schema__.fields)
        return " or ".join(inside)

    def tags(self, value: str, known: list[Field]) -> None:
        """Tagged fields that differ from their default, in order of their numbers."""
        tags, outer = self.name("tags"), self.name("outer")
        self.put(f"{tags} = []")
        for field in known:
            held = self.name(field.name)
            self.put(f"{held} = {value}.{field.name}")
            self.put(f"if {self.differs(held, field.default)}:")
            self.depth += 1
            self.put(f"{outer} = out; out = bytearray()")
            self.value(field, field.kind, held, field.many)
            self.flush()
            head = f"put_uvarint({field.tag}) + put_uvarint(len(out))"
            self.put(f"{tags}.append({head} + out); out = {outer}")
            self.depth -= 1
        self.put(f"out += put_uvarint(len({tags})) + b''.join({tags}) if {tags} else b'\\0'")
