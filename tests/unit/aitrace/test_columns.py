import numpy as np
import pytest

from aitrace.columns import (
    CALL_CLASSES,
    ERRORS,
    GAP_CAUSES,
    NOT_KNOWN,
    RELATIONS,
    SEGMENT_TYPES,
    TRIGGERS,
    ColumnBuilder,
    Growing,
    call_columns,
    segment_columns,
)
from aitrace.prompts import PromptResolver, prompt_size
from aitrace.schema import CallTimes, Outcome, Prompt, ToolCall, Trace, Usage
from aitrace.testing import TraceBuilder, make_call, make_segment, make_trace


def tree():
    """A main agent whose prompt is replaced once, with a sub-agent that keeps a part of its prompt."""
    builder = TraceBuilder()
    main = builder.session()
    segments = [builder.segment(100 * (i + 1), role="user", type="text") for i in range(6)]
    timed, untimed = ToolCall(duration_ns=5), ToolCall()
    first = builder.call(main, segments[:3], streamed=False, unseen_start=True, tool_calls=(timed, timed))
    second = builder.call(
        main, [segments[3]], call_class="compaction", max_output_tokens=50, tool_calls=(timed, untimed)
    )
    child = builder.session(main)
    builder.call(child, [segments[4]], base=second, keep=2, after=[first, second])
    builder.call(main, [segments[5]], keep=1, cause="user")
    builder.call(main, [], keep=0, outcome=Outcome(error="cut"))
    return builder.trace()


def test_columns_hold_what_the_lines_hold():
    trace = tree()
    columns = call_columns(trace)
    calls = trace.calls

    def known(values):
        return [NOT_KNOWN if value is None else value for value in values]

    assert [c.session for c in calls] == columns.session.tolist()
    assert [trace.sessions[c.session].root for c in calls] == columns.root.tolist()
    assert [c.call_class for c in calls] == [CALL_CLASSES[code] for code in columns.call_class]
    assert [c.times.request_ns for c in calls] == columns.request_ns.tolist()
    assert known(c.times.end_ns for c in calls) == columns.end_ns.tolist()
    assert known(c.usage.input_tokens for c in calls) == columns.input_tokens.tolist()
    assert known(c.usage.output_tokens for c in calls) == columns.output_tokens.tolist()
    assert known(c.max_output_tokens for c in calls) == columns.max_output_tokens.tolist()
    assert [int(c.streamed) for c in calls] == columns.streamed.tolist()
    assert [int(c.prompt.unseen_start) for c in calls] == columns.unseen_start.tolist()
    assert [c.outcome.error for c in calls] == [ERRORS[code] for code in columns.error]
    assert columns.has_timed_tools.tolist() == [1, 0, 0, 0, 0]
    assert known(c.prompt.base for c in calls) == columns.base.tolist()
    assert [c.prompt.keep for c in calls] == columns.keep.tolist()
    assert known(c.retry_of for c in calls) == columns.retry_of.tolist()
    assert [list(c.prompt.add) for c in calls] == [columns.added(c.id) for c in calls]


def test_dependencies_lie_one_after_the_other():
    trace = tree()
    columns = call_columns(trace)
    for call in trace.calls:
        place = slice(columns.after_first[call.id], columns.after_first[call.id + 1])
        got = zip(
            columns.after_call[place].tolist(),
            columns.after_gap_ns[place].tolist(),
            [RELATIONS[code] for code in columns.after_relation[place]],
            [TRIGGERS[code] for code in columns.after_trigger[place]],
            [GAP_CAUSES[code] for code in columns.after_cause[place]],
            strict=True,
        )
        assert [(d.call, d.gap_ns, d.relation, d.trigger, d.cause) for d in call.after] == list(got)
    assert len(columns.after_call) == sum(len(call.after) for call in trace.calls) > 0


def test_a_prompt_has_the_size_and_length_of_its_segments():
    trace = tree()
    columns = call_columns(trace)
    prompts = PromptResolver(trace.calls)
    ids = [prompts.segment_ids(call.id) for call in trace.calls]
    assert [prompt_size(trace, one) for one in ids] == columns.prompt_size.tolist()
    assert list(map(len, ids)) == columns.prompt_length.tolist()


def test_what_is_not_in_a_line_is_not_known_or_its_default():
    trace = Trace(
        header=make_trace().header,
        sessions=make_trace().sessions[:1],
        segments=(),
        calls=(make_call(0, times=CallTimes(request_ns=5)),),
    )
    columns = call_columns(trace)
    unknown = (columns.end_ns, columns.input_tokens, columns.output_tokens, columns.max_output_tokens)
    assert [column[0] for column in unknown] == [NOT_KNOWN] * 4
    assert (columns.streamed[0], columns.base[0], columns.retry_of[0]) == (NOT_KNOWN, NOT_KNOWN, NOT_KNOWN)
    assert (columns.keep[0], columns.prompt_size[0], columns.unseen_start[0]) == (0, 0, 0)
    assert CALL_CLASSES[columns.call_class[0]] == "unknown"


def chain(*prompts):
    calls = tuple(make_call(number, prompt=prompt) for number, prompt in enumerate(prompts))
    segments = tuple(make_segment(number, 10**number, number) for number in range(6))
    return Trace(
        header=make_trace().header, sessions=make_trace().sessions[:1], segments=segments, calls=calls
    )


@pytest.mark.parametrize("batch", [1, 2, 10])
def test_the_source_of_a_prompt_is_the_call_that_brought_the_last_kept_segment(batch):
    trace = chain(
        Prompt(add=(0, 1)),
        Prompt(base=0, keep=2, add=(2, 3)),
        Prompt(base=1, keep=1, add=(4,)),
        Prompt(base=2, keep=1, add=()),
        Prompt(base=1, keep=3, add=(5,)),
        Prompt(base=4, keep=4),
        Prompt(base=5, keep=2),
        Prompt(base=6, keep=0, add=(3,)),
    )
    builder = ColumnBuilder()
    builder.add_sessions([0])
    builder.add_segments([{"size": 10**n, "type": "text", "blocks": []} for n in range(6)])
    for first in range(0, len(trace.calls), batch):
        builder.add_calls(
            [
                {
                    "session": 0,
                    "prompt": {"base": call.prompt.base, "keep": call.prompt.keep, "add": call.prompt.add},
                    "times": {"request_ns": 0},
                }
                for call in trace.calls[first : first + batch]
            ]
        )
    columns = builder.call_columns()
    none = NOT_KNOWN
    assert [none, 0, 0, 0, 1, 4, 0, none] == columns.source.tolist()
    assert columns.prompt_size.tolist() == [11, 1111, 10001, 1, 100111, 100111, 11, 1000]
    assert columns.prompt_size.tolist() == call_columns(trace).prompt_size.tolist()


def test_an_update_replaces_what_it_tells():
    builder = ColumnBuilder()
    builder.add_sessions([0])
    builder.add_calls(
        [{"session": 0, "prompt": {}, "times": {"request_ns": 1}, "usage": {"input_tokens": 9}}] * 2
    )
    builder.add_update(0, {"times": {"request_ns": 1, "end_ns": 8}})
    builder.add_update(0, {"usage": {"output_tokens": 5}})
    builder.add_update(1, {"times": {"request_ns": 1}, "usage": None})
    builder.add_update(1, {"outcome": {"error": "cut"}, "tool_calls": [{"duration_ns": 0}]})
    columns = builder.call_columns()
    assert columns.end_ns.tolist() == [8, NOT_KNOWN]
    assert (columns.input_tokens.tolist(), columns.output_tokens.tolist()) == ([NOT_KNOWN, 9], [5, NOT_KNOWN])
    assert ([ERRORS[code] for code in columns.error], columns.has_timed_tools.tolist()) == (
        [None, "cut"],
        [0, 1],
    )


def test_segments_have_their_size_type_and_runs():
    builder = TraceBuilder()
    first = builder.segment(256, role="system", type="system")
    builder.segment(0, role="user", type="text")
    builder.segment(330, like=first)
    trace = builder.trace()
    columns = segment_columns(trace)
    assert columns.size.tolist() == [256, 0, 330]
    assert [s.type for s in trace.segments] == [SEGMENT_TYPES[code] for code in columns.type]
    flat = list(zip(columns.run_start.tolist(), columns.run_count.tolist(), strict=True))
    runs = [tuple(flat[columns.runs_first[i] : columns.runs_first[i + 1]]) for i in range(3)]
    assert [segment.blocks for segment in trace.segments] == runs


def test_a_trace_without_lines_has_empty_columns():
    empty = Trace(header=make_trace().header, sessions=(), segments=(), calls=())
    assert (
        len(call_columns(empty).root),
        call_columns(empty).add_first.tolist(),
        call_columns(empty).after_first.tolist(),
    ) == (0, [0], [0])
    assert (len(segment_columns(empty).size), segment_columns(empty).runs_first.tolist()) == (0, [0])


def test_the_next_new_block_follows_the_highest():
    builder = ColumnBuilder()
    builder.add_segments([{"size": 1, "type": "text", "blocks": [0, 5, 2, 1]}])
    assert builder.next_block == 5
    builder.add_segments(
        [{"size": 1, "type": "text", "blocks": [1, 2]}, {"size": 0, "type": "text", "blocks": []}]
    )
    assert builder.next_block == 5


def test_an_array_grows_and_keeps_what_was_in_it():
    column = Growing(first=[7])
    for number in range(3000):
        column.extend([number])
    column.extend(np.arange(5000))
    assert [7, *range(3000), *range(5000)] == column.values.tolist()
    assert len(column) == 8001


def test_usage_of_a_line_in_memory_is_taken():
    trace = chain(Prompt(add=(0,)))
    calls = (make_call(0, prompt=Prompt(add=(0,)), usage=Usage(input_tokens=3, output_tokens=4)),)
    columns = call_columns(
        Trace(header=trace.header, sessions=trace.sessions, segments=trace.segments, calls=calls)
    )
    assert (columns.input_tokens[0], columns.output_tokens[0]) == (3, 4)


class Bringing(tuple):
    """Lines that bring their columns along, as those of a stored trace do."""

    __slots__ = ()
    columns = "columns of calls"
    segment_columns = "columns of segments"


def test_lines_that_bring_their_columns_are_not_looked_at():
    trace = Trace(header=make_trace().header, sessions=(), segments=Bringing([None]), calls=Bringing([None]))
    assert (call_columns(trace), segment_columns(trace)) == ("columns of calls", "columns of segments")
