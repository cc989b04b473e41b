"""Pure: trace lines and run records to and from JSON, with converters derived once from the dataclasses' types.

Rules of the JSON form: a field that equals its default is left out; a known field of the wrong type, a word that is
not in a closed set and a missing field are errors that name the place and the field; an unknown field of a line is
kept in its `extra` and written back. An unknown field *inside* a known one is kept there too, under the name of the
known field (`{"usage": {"new": 1}}`, in lists by index: `{"after": {"0": {"new": 1}}}`).
"""

import dataclasses
import math
import types
import typing
from collections.abc import Callable, Collection, Container, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, chain, pairwise
from typing import Any, Literal, TypeVar

import orjson

from aitrace.errors import InputError, shown
from aitrace.results import CallResult, RunEnd, RunHeader, Scrape
from aitrace.schema import MAX_COUNT, Call, Events, Footer, Header, Line, Segment, Session, Update, Usage

KINDS: dict[str, type[Line]] = {
    "header": Header,
    "session": Session,
    "segment": Segment,
    "call": Call,
    "update": Update,
    "footer": Footer,
}
"""What the `kind` of a line may be, and what the line then is."""

_KIND_OF = {cls: kind for kind, cls in KINDS.items()}
_EXTRA = "extra"
_RecordT = TypeVar("_RecordT", RunHeader, RunEnd, CallResult, Scrape)
_Unknown = dict[str, Any]
_Decode = Callable[[Any, _Unknown, str], Any]
_Encode = Callable[[Any], Any]


class _WrongValueError(Exception):
    """A value that does not fit its field; the path grows on the way out."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.path: list[str] = []
        """Names of the fields, from the outermost to the wrong one."""


def encode_line(line: Line) -> bytes:
    """One line of a trace as JSON, with its newline."""
    fields = _encode_fields(_plan(type(line)), line)
    return orjson.dumps({"kind": _KIND_OF[type(line)], **fields}, option=orjson.OPT_APPEND_NEWLINE)


def decode_line(data: bytes, *, place: str) -> Line:
    """One line of a trace of the current version.

    Args:
        place: Where the line stands (`file:line`), for the text of errors.

    Raises:
        InputError: The line is not JSON, or a field is missing or wrong.
    """
    return line_from_fields(parse_object(data, place=place), place=place)


def encode_record(record: RunHeader | RunEnd | CallResult | Scrape) -> bytes:
    """One record of a run as JSON, with a newline."""
    return orjson.dumps(_encode_fields(_plan(type(record)), record), option=orjson.OPT_APPEND_NEWLINE)


def decode_record(cls: type[_RecordT], data: bytes, *, place: str) -> _RecordT:
    """One record of a run; fields of a later program that this one does not know are passed over.

    Raises:
        InputError: The record is not JSON, or a field is missing or wrong.
    """
    return record_from_fields(cls, parse_object(data, place=place), place=place)


def parse_object(data: bytes, *, place: str) -> dict[str, Any]:
    """The JSON object that `data` holds, its fields unchecked."""
    try:
        fields = orjson.loads(data)
    except orjson.JSONDecodeError as error:
        raise InputError(f"{place}: not JSON: {error}") from error
    if type(fields) is not dict:
        raise InputError(f"{place}: expected a JSON object, got {shown(fields)}")
    return fields


def line_from_fields(fields: Mapping[str, Any], *, place: str) -> Line:
    """The line that these JSON fields mean; see `decode_line`."""
    kind = fields.get("kind")
    cls = KINDS.get(kind) if isinstance(kind, str) else None
    if cls is None:
        raise InputError(f"{place}: kind: expected one of {_listed(tuple(KINDS))}, got {shown(kind)}")
    plan = _plan(cls)
    unknown: _Unknown = {}
    try:
        arguments = _decode_fields(plan, fields, unknown)
    except _WrongValueError as error:
        raise InputError(f"{place}: {'.'.join([str(kind), *error.path])}: {error}") from error
    # The discriminator is no field of any line, so it always arrives here.
    del unknown["kind"]
    if unknown:
        arguments[_EXTRA] = _writable(unknown, place)
    line: Line = cls(**arguments)
    return line


def conform(kind: str, lines: Sequence[Any]) -> bool:
    """Whether each of these JSON values is a line of that kind, all of its fields known: `line_from_fields` takes it.

    They are looked at field by field over all lines, which takes a fraction of the time. False may also mean that a
    look at each line is needed to tell.
    """
    cls = KINDS.get(kind)
    return cls is not None and _conform_fields(_plan(cls), lines, discriminator={"kind"})


def _writable(unknown: _Unknown, place: str) -> _Unknown:
    """`unknown`, if it can be written back: readers take deeper nesting than writers."""
    try:
        orjson.dumps(unknown)
    except orjson.JSONEncodeError as error:
        raise InputError(f"{place}: unknown fields are nested too deep: {_listed(tuple(unknown))}") from error
    return unknown


def record_from_fields(cls: type[_RecordT], fields: Mapping[str, Any], *, place: str) -> _RecordT:
    """The record that these JSON fields mean; see `decode_record`."""
    try:
        return cls(**_decode_fields(_plan(cls), fields, {}))
    except _WrongValueError as error:
        raise InputError(f"{place}: {'.'.join(error.path)}: {error}") from error


def fields_from_record(record: RunHeader | RunEnd | CallResult | Scrape) -> dict[str, Any]:
    """The JSON fields of a record, for a file that holds more than one."""
    return _encode_fields(_plan(type(record)), record)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Converter:
    """How values of one type are read and written."""

    as_is: Mapping[type, Container[Any] | None]
    """Values that stay as they are, by the type of the JSON value; None = all of that type."""
    decode: _Decode
    """Called for the rest, or for all; raises `_WrongValueError` for what does not fit."""
    encode: _Encode | None
    """None if the value is JSON already."""
    part_type: type | None = None
    """JSON type of values that have parts, `dict` or `list`; None if none have."""
    parts_conform: Callable[[Sequence[Any]], bool] | None = None
    """Whether the parts of all these values fit, see `conform`; None if only a look at each can tell."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Field:
    """One field of a dataclass and its place in JSON."""

    name: str
    """Name in Python."""
    key: str
    """Name in JSON."""
    converter: _Converter
    """How its values are read and written."""
    default: Any
    """What is left out when writing; MISSING if the field is always written."""
    required: bool
    """Whether reading fails without it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Plan:
    """How one dataclass is read and written."""

    fields: tuple[_Field, ...]
    """All but `extra`, in the order of the dataclass."""
    by_key: dict[str, _Field]
    """The same by their names in JSON."""
    required: frozenset[str]
    """Names in Python of those that must be there."""
    has_extra: bool
    """Whether unknown fields have a place in the dataclass."""


def _decode_fields(plan: _Plan, fields: Mapping[str, Any], unknown: _Unknown) -> dict[str, Any]:
    """Constructor arguments from JSON fields; what the plan does not know goes to `unknown`."""
    by_key = plan.by_key
    arguments: dict[str, Any] = {}
    for key, value in fields.items():
        entry = by_key.get(key)
        if entry is None:
            unknown[key] = value
            continue
        converter = entry.converter
        allowed = converter.as_is.get(type(value), ())
        if allowed is None or value in allowed:
            arguments[entry.name] = value
            continue
        try:
            arguments[entry.name] = converter.decode(value, unknown, key)
        except _WrongValueError as error:
            error.path.insert(0, key)
            raise
    if not arguments.keys() >= plan.required:
        missing = _WrongValueError("missing")
        missing.path.append(next(e.key for e in plan.fields if e.required and e.name not in arguments))
        raise missing
    return arguments


def _conform_fields(plan: _Plan, records: Sequence[Any], *, discriminator: Collection[str] = ()) -> bool:
    keys: set[str] = set().union(*records)
    if not plan.by_key.keys() >= keys.difference(discriminator):
        return False
    for key, entry in plan.by_key.items():
        values = [record[key] for record in records if key in record] if key in keys else []
        if entry.required and len(values) < len(records):
            return False
        if values and not _conform_values(entry.converter, values):
            return False
    return True


def _conform_values(converter: _Converter, values: Sequence[Any]) -> bool:
    """Whether the converter takes each of these values."""
    kinds = set(map(type, values))
    if len(kinds) > 1 and types.NoneType in kinds and types.NoneType in converter.as_is:
        values = [value for value in values if value is not None]
        kinds.remove(types.NoneType)
    if len(kinds) != 1:
        return False
    [kind] = kinds
    if kind is converter.part_type and converter.parts_conform is not None:
        return converter.parts_conform(values)
    allowed = converter.as_is.get(kind, ())
    if isinstance(allowed, range):
        return min(values) in allowed and max(values) in allowed
    return allowed is None or (isinstance(allowed, frozenset) and allowed.issuperset(values))


def _encode_fields(plan: _Plan, record: Any) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    for entry in plan.fields:
        value = getattr(record, entry.name)
        if value == entry.default:
            continue
        encode = entry.converter.encode
        fields[entry.key] = value if encode is None or value is None else encode(value)
    if plan.has_extra and record.extra:
        _merge_unknown(plan, fields, record.extra)
    return fields


def _merge_unknown(plan: _Plan, fields: dict[str, Any], extra: Mapping[str, Any]) -> None:
    """Put unknown fields back where they stood; what stood inside a part that is gone goes with it."""
    for key, value in extra.items():
        if key == "kind" or (key in plan.by_key and plan.by_key[key].converter.encode is None):
            raise ValueError(f"extra holds {key!r}, which is a field of the format")
        entry = plan.by_key.get(key)
        if entry is None:
            fields[key] = value
        elif key in fields or dataclasses.is_dataclass(entry.default):
            fields[key] = _with_unknown(fields.get(key, {}), value)


def _with_unknown(target: Any, unknown: Mapping[str, Any]) -> Any:
    """An object or a list of objects with unknown fields inside."""
    if isinstance(target, list):
        return [
            _with_unknown(item, unknown[str(i)]) if str(i) in unknown else item
            for i, item in enumerate(target)
        ]
    return {**target, **unknown}


def _plan(cls: type) -> _Plan:
    """The plan of a dataclass, made when it is first needed."""
    plan = _PLANS.get(cls)
    if plan is None:
        plan = _PLANS[cls] = _make_plan(cls)
    return plan


_PLANS: dict[type, _Plan] = {}


def _make_plan(cls: type) -> _Plan:
    hints = typing.get_type_hints(cls)
    fields = tuple(
        _field_plan(cls, field, hints[field.name])
        for field in dataclasses.fields(cls)
        if field.name != _EXTRA
    )
    return _Plan(
        fields=fields,
        by_key={field.key: field for field in fields},
        required=frozenset(field.name for field in fields if field.required),
        has_extra=_EXTRA in hints,
    )


def _field_plan(cls: type, field: "dataclasses.Field[Any]", hint: Any) -> _Field:
    default: Any = field.default
    if field.default_factory is not dataclasses.MISSING:
        default = field.default_factory()
    required = default is dataclasses.MISSING
    if field.name == "version":
        # A file whose version has to be guessed is not versioned.
        default, required = dataclasses.MISSING, True
    return _Field(
        name=field.name,
        key=_KEYS.get((cls, field.name), field.name),
        converter=_FORMS.get((cls, field.name)) or _converter(hint),
        default=default,
        required=required,
    )


def _converter(hint: Any) -> _Converter:
    """The converter of a type hint; every kind of hint that the dataclasses use is here."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if hint in _SCALARS:
        return _SCALARS[hint]
    if origin is Literal:
        return _literal(arguments)
    if origin in (types.UnionType, typing.Union):
        return _optional(_converter(next(a for a in arguments if a is not types.NoneType)))
    if origin is tuple:
        return _tuple(arguments[0])
    if origin is dict:
        return _dict(arguments[1])
    if dataclasses.is_dataclass(hint) and isinstance(hint, type):
        return _record(hint)
    raise TypeError(f"no JSON form for {hint!r}")


def _refuse(expected: str) -> _Decode:
    def decode(value: Any, _unknown: _Unknown, _key: str) -> Any:
        raise _WrongValueError(f"expected {expected}, got {shown(value)}")

    return decode


def _float(value: Any, _unknown: _Unknown, _key: str) -> float:
    if type(value) is int:
        return float(value)
    raise _WrongValueError(f"expected a number, got {shown(value)}")


def _finite(value: float) -> float:
    if not math.isfinite(value):
        raise ValueError(f"JSON has no form for {value!r}")
    return value


def _integer_in(allowed: range, expected: str) -> _Converter:
    def decode(value: Any, _unknown: _Unknown, _key: str) -> int:
        if type(value) is not int:
            raise _WrongValueError(f"expected an integer, got {shown(value)}")
        if value not in allowed:
            raise _WrongValueError(f"expected {expected}, got {value}")
        return value

    return _Converter(as_is={int: allowed}, decode=decode, encode=None)


_INT64 = range(-(2**63), 2**63)


def _text_or_integer(value: Any, _unknown: _Unknown, _key: str) -> int:
    if type(value) is not int or value not in _INT64:
        raise _WrongValueError(f"expected a string or a number, got {shown(value)}")
    return value


_SCALARS = {
    int: _integer_in(_INT64, "an integer of 64 bits"),
    str: _Converter(as_is={str: None}, decode=_refuse("a string"), encode=None),
    bool: _Converter(as_is={bool: None}, decode=_refuse("true or false"), encode=None),
    float: _Converter(as_is={float: None}, decode=_float, encode=_finite),
    str | int | float: _Converter(as_is={str: None, float: None}, decode=_text_or_integer, encode=None),
}


def _optional(inner: _Converter) -> _Converter:
    return dataclasses.replace(inner, as_is={**inner.as_is, types.NoneType: None})


def _literal(words: tuple[str, ...]) -> _Converter:
    return _Converter(as_is={str: frozenset(words)}, decode=_refuse(f"one of {_listed(words)}"), encode=None)


def _record(cls: type) -> _Converter:
    plan = _plan(cls)
    refuse = _refuse("an object")

    def decode(value: Any, unknown: _Unknown, key: str) -> Any:
        if type(value) is not dict:
            return refuse(value, unknown, key)
        inner: _Unknown = {}
        record = cls(**_decode_fields(plan, value, inner))
        if inner:
            unknown[key] = inner
        return record

    return _Converter(
        as_is={},
        decode=decode,
        encode=lambda record: _encode_fields(plan, record),
        part_type=dict,
        parts_conform=lambda records: _conform_fields(plan, records),
    )


def _tuple(item_hint: Any) -> _Converter:
    item = _converter(item_hint)
    simple = (
        _INTEGER_ONLY
        if item_hint is int
        else frozenset(kind for kind, allowed in item.as_is.items() if allowed is None)
    )
    refuse = _refuse("a list")

    def decode(value: Any, unknown: _Unknown, key: str) -> Any:
        if type(value) is not list:
            return refuse(value, unknown, key)
        # Timelines are long, so their integers are not looked at one by one.
        if simple.issuperset(map(type, value)) and (item_hint is not int or _fit(value)):
            return tuple(value)
        inner: _Unknown = {}
        items = tuple(_decode_item(item, value[i], inner, str(i)) for i in range(len(value)))
        if inner:
            unknown[key] = inner
        return items

    def parts_conform(lists: Sequence[Any]) -> bool:
        parts = list(chain.from_iterable(lists))
        return not parts or _conform_values(item, parts)

    encode_item = item.encode
    return _Converter(
        as_is={},
        decode=decode,
        encode=None if encode_item is None else lambda value: [encode_item(part) for part in value],
        part_type=list,
        parts_conform=parts_conform,
    )


def _dict(value_hint: Any) -> _Converter:
    if value_hint is Any:
        return _Converter(as_is={dict: None}, decode=_refuse("an object"), encode=None)
    item = _converter(value_hint)
    refuse = _refuse("an object")

    def decode(value: Any, unknown: _Unknown, key: str) -> Any:
        if type(value) is not dict:
            return refuse(value, unknown, key)
        return {name: _decode_item(item, part, {}, name) for name, part in value.items()}

    if value_hint is float:
        # An engine may report NaN for what it has not measured; a value that is not known is left out.
        return _Converter(
            as_is={},
            decode=decode,
            encode=lambda value: {k: v for k, v in value.items() if math.isfinite(v)},
        )
    return _Converter(as_is={}, decode=decode, encode=None)


def _decode_item(item: _Converter, value: Any, unknown: _Unknown, key: str) -> Any:
    allowed = item.as_is.get(type(value), ())
    if allowed is None or value in allowed:
        return value
    try:
        return item.decode(value, unknown, key)
    except _WrongValueError as error:
        error.path.insert(0, key)
        raise


def _fit(integers: Sequence[int]) -> bool:
    """Whether all have 64 bits."""
    return not integers or (min(integers) in _INT64 and max(integers) in _INT64)


def _integers(value: Any) -> list[int]:
    if type(value) is not list or not _INTEGER_ONLY.issuperset(map(type, value)):
        raise _WrongValueError(f"expected a list of integers, got {shown(value)}")
    if not _fit(value):
        raise _WrongValueError(f"expected integers of 64 bits, got {shown(value)}")
    return value


def _decode_blocks(value: Any, _unknown: _Unknown, _key: str) -> tuple[tuple[int, int], ...]:
    flat = _integers(value)
    if len(flat) % 2:
        raise _WrongValueError(f"expected pairs of first id and count, got {len(flat)} numbers")
    return tuple(zip(flat[::2], flat[1::2], strict=True))


def _conform_blocks(lists: Sequence[list[Any]]) -> bool:
    return not any(len(numbers) % 2 for numbers in lists) and _conform_integers(lists)


def _conform_integers(lists: Sequence[list[Any]]) -> bool:
    numbers = list(chain.from_iterable(lists))
    return not numbers or _conform_values(_SCALARS[int], numbers)


def _encode_blocks(blocks: tuple[tuple[int, int], ...]) -> list[int]:
    return [number for run in blocks for number in run]


def _decode_differences(value: Any, _unknown: _Unknown, _key: str) -> tuple[int, ...]:
    points = tuple(accumulate(_integers(value)))
    if not _fit(points):
        raise _WrongValueError("expected differences that add up to integers of 64 bits")
    return points


def _conform_differences(lists: Sequence[list[Any]]) -> bool:
    # Differences that may go up and down are looked at one by one.
    return _conform_integers(lists) and all(sum(map(abs, numbers)) in _INT64 for numbers in lists)


def _encode_differences(points: tuple[int, ...]) -> list[int]:
    return [*points[:1], *(later - earlier for earlier, later in pairwise(points))]


_INTEGER_ONLY = frozenset({int})
_COUNT = _integer_in(range(-MAX_COUNT, MAX_COUNT + 1), f"an integer up to {MAX_COUNT}")
_KEYS: dict[tuple[type, str], str] = {(Call, "call_class"): "class"}
"""Names in JSON that differ from those of the dataclass."""
_FORMS: dict[tuple[type, str], _Converter] = {
    (Segment, "size"): _COUNT,
    **{(Usage, field.name): _optional(_COUNT) for field in dataclasses.fields(Usage)},
    (Segment, "blocks"): _Converter(
        as_is={},
        decode=_decode_blocks,
        encode=_encode_blocks,
        part_type=list,
        parts_conform=_conform_blocks,
    ),
    (Events, "at_ns"): _Converter(
        as_is={},
        decode=_decode_differences,
        encode=_encode_differences,
        part_type=list,
        parts_conform=_conform_differences,
    ),
}
"""Fields whose JSON form is not that of their type, or that are added up over many lines."""


def _listed(words: tuple[str, ...]) -> str:
    return ", ".join(repr(word) for word in words)
