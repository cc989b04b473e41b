"""What `keeps_rules` says, against what decoding and `ReferenceRules` find line by line."""

import orjson
import pytest

from aitrace.codec import encode_line, line_from_fields
from aitrace.columns import ColumnBuilder
from aitrace.errors import InputError
from aitrace.line_batch import batch_of, keeps_rules
from aitrace.schema import Dependency, Events, Outcome, ToolCall, Usage, Wire
from aitrace.testing import TraceBuilder, make_trace, recorded_lines
from aitrace.validate import MAX_SEGMENT_BLOCKS, ReferenceRules

HEADER = make_trace().header


def rich_trace():
    """A line of each kind, with most fields set."""
    builder = TraceBuilder()
    main = builder.session(harness="claude-code", evidence=["a"])
    first = builder.call(
        main,
        [builder.segment(200, role="system", type="system"), builder.segment(64)],
        events=Events(at_ns=(5, 7), size_bytes=(10, 20)),
        tool_calls=(ToolCall(name="Bash", end_ns=7), ToolCall()),
        wire=Wire(transport="h2", connection=0),
        usage=Usage(input_tokens=5, output_tokens=7),
    )
    child = builder.session(main, agent="Explore")
    inner = builder.call(child, [builder.segment(0)], after=[first], outcome=Outcome(error="cut"))
    builder.call(main, [builder.segment(100)], after=[first, inner])
    return builder.trace()


def fields_of(lines):
    return [orjson.loads(encode_line(line)) for line in lines]


def whole():
    trace = rich_trace()
    return fields_of([*trace.sessions, *trace.segments, *trace.calls, trace.footer])


def recorded():
    return fields_of(recorded_lines(rich_trace())[1:])


def says(lines, *, size=100, block_size=64):
    """What `keeps_rules` says of the lines in batches of so many."""
    columns = ColumnBuilder()
    for first in range(0, len(lines), size):
        batch = batch_of(lines[first : first + size])
        if batch is None or not keeps_rules(batch, columns, block_size):
            return False
        batch.add_to(columns)
    return True


def are_good(lines):
    """The same, line by line."""
    rules = ReferenceRules()
    rules.check(1, HEADER)
    try:
        return not any(
            rules.check(number, line_from_fields(line, place="x")) for number, line in enumerate(lines, 2)
        )
    except InputError:
        return False


@pytest.mark.parametrize("size", [1, 2, 3, 100])
@pytest.mark.parametrize("lines", [whole(), recorded()])
def test_a_good_trace_is_good_in_batches_of_any_size(lines, size):
    assert are_good(lines)
    assert says(lines, size=size)


def lines_with(kind, index, **changed):
    """A whole trace with fields of one line changed; a value of `...` takes the field away."""
    lines = whole()
    line = [line for line in lines if line["kind"] == kind][index]
    for path, value in changed.items():
        *outer, name = path.split("__")
        part = line
        for step in outer:
            part = part[int(step)] if step.isdecimal() else part.setdefault(step, {})
        if value is ...:
            del part[name]
        else:
            part[name] = value
    return lines


WRONG = [
    ("session", 0, {"id": 1}),
    ("session", 0, {"id": "0"}),
    ("session", 0, {"root": 1}),
    ("session", 1, {"root": 1}),
    ("session", 1, {"parent": 1}),
    ("session", 1, {"parent": -1}),
    ("session", 0, {"evidence": [1]}),
    ("session", 0, {"evidence": None}),
    ("segment", 1, {"id": 7}),
    ("segment", 0, {"size": -1}),
    ("segment", 0, {"size": 201, "blocks": [0, 3]}),
    ("segment", 0, {"size": 2**41}),
    ("segment", 0, {"size": True}),
    ("segment", 0, {"blocks": [0, 4, 4]}),
    ("segment", 0, {"blocks": [0, 4.0]}),
    ("segment", 0, {"blocks": [1, 4]}),
    ("segment", 0, {"blocks": [-1, 4]}),
    ("segment", 0, {"blocks": [2**62, 4]}),
    ("segment", 0, {"blocks": [0, 4, 4, 0]}),
    ("segment", 0, {"blocks": [0, 2**63 - 1]}),
    ("segment", 0, {"blocks": ...}),
    ("segment", 0, {"role": "robot"}),
    ("segment", 0, {"role": ["user"]}),
    ("segment", 0, {"text": 5}),
    ("call", 0, {"id": 1}),
    ("call", 0, {"session": 2}),
    ("call", 0, {"session": -1}),
    ("call", 0, {"session": None}),
    ("call", 0, {"prompt": []}),
    ("call", 0, {"prompt": ...}),
    ("call", 0, {"prompt__base": 0}),
    ("call", 0, {"prompt__keep": 1}),
    ("call", 0, {"prompt__add": [4]}),
    ("call", 0, {"prompt__add": [-1]}),
    ("call", 0, {"prompt__add": None}),
    ("call", 2, {"prompt__keep": 3}),
    ("call", 2, {"prompt__keep": -1}),
    ("call", 2, {"prompt__base": 2}),
    ("call", 1, {"retry_of": 1}),
    ("call", 1, {"retry_of": -1}),
    ("call", 1, {"after__0__call": 1}),
    ("call", 1, {"after__0__call": -1}),
    ("call", 1, {"after__0__relation": "friend"}),
    ("call", 1, {"after__0__relation": ...}),
    ("call", 1, {"after": [5]}),
    ("call", 0, {"times__request_ns": 2**63}),
    ("call", 0, {"times": {}}),
    ("call", 0, {"usage": None}),
    ("call", 0, {"usage__input_tokens": 2**41}),
    ("call", 0, {"usage__input_tokens": 1.5}),
    ("call", 0, {"events__at_ns": [2**62, 2**62]}),
    ("call", 0, {"events__size_bytes": [1, None]}),
    ("call", 0, {"streamed": 1}),
    ("call", 0, {"class": None}),
    ("footer", 0, {"calls": 4}),
    ("footer", 0, {"sessions": 1}),
    ("footer", 0, {"segments": 1}),
    ("footer", 0, {"blocks": 99}),
    ("footer", 0, {"notes": {"x": "1"}}),
]


@pytest.mark.parametrize(("kind", "index", "changed"), WRONG)
@pytest.mark.parametrize("size", [1, 100])
def test_what_is_wrong_is_not_let_through(kind, index, changed, size):
    lines = lines_with(kind, index, **changed)
    assert not are_good(lines)
    assert not says(lines, size=size)


@pytest.mark.parametrize(
    ("kind", "index", "changed"),
    [
        ("call", 0, {"usage__new": 1}),
        ("segment", 0, {"new": 1}),
        ("footer", 0, {"notes": {"parse_errors": 1}}),
        ("call", 0, {"events__at_ns": [-(2**62), 2**62]}),
    ],
)
def test_what_is_rare_is_left_to_a_look_at_each_line(kind, index, changed):
    lines = lines_with(kind, index, **changed)
    assert are_good(lines)
    assert not says(lines)


@pytest.mark.parametrize(
    "changed", [{"turn": None}, {"usage": {}}, {"events__at_ns": []}, {"tool_calls": []}]
)
def test_what_is_not_known_is_let_through(changed):
    lines = lines_with("call", 0, **changed)
    assert are_good(lines)
    assert says(lines)


def test_a_reference_must_stand_before_the_line_in_the_same_batch():
    lines = whole()
    for one, other in (
        (0, 6),
        (2, 6),
        (6, 7),
    ):  # a session, a segment and a call behind the call that needs it
        moved = lines[:one] + lines[one + 1 : other + 1] + [lines[one]] + lines[other + 1 :]
        assert not are_good(moved)
        assert not says(moved)


def test_an_update_names_an_earlier_call():
    lines = recorded()
    update = next(line for line in lines if line["kind"] == "update")
    for place in range(len(lines) - 1):  # the footer is the last
        moved = [line for line in lines if line is not update]
        moved.insert(place, update)
        assert says(moved) == are_good(moved)


def test_nothing_follows_the_footer():
    lines = whole()
    assert not says([*lines, {"kind": "session", "id": 2, "root": 2}])
    assert not says([*lines, lines[-1]])


@pytest.mark.parametrize(
    "line", [5, [], None, {}, {"kind": 5}, {"kind": ["call"]}, {"kind": "header"}, {"kind": "x"}]
)
def test_what_is_no_line_makes_no_batch(line):
    assert batch_of([line]) is None


def test_a_segment_of_too_many_blocks_is_not_let_through():
    size = MAX_SEGMENT_BLOCKS + 1
    for blocks in ([0, size], [0, MAX_SEGMENT_BLOCKS, MAX_SEGMENT_BLOCKS, 1]):
        line = {"kind": "segment", "id": 0, "role": "user", "type": "text", "size": size, "blocks": blocks}
        assert not says([line], block_size=1)
    most = {**line, "size": size - 1, "blocks": [0, size - 1]}
    assert says([most], block_size=1)


def test_dependencies_without_a_gap_are_let_through():
    trace = rich_trace()
    assert isinstance(trace.calls[1].after[0], Dependency)
    assert says(lines_with("call", 1, after__0__gap_ns=...))
