from dataclasses import replace
from typing import NamedTuple

from aitrace.prompts import PromptResolver, prompt_size
from aitrace.schema import Trace, Usage
from aitrace.testing import TraceBuilder, find_problems, make_trace, recorded_lines
from replayer.planning.context_window import Fitted, Window
from replayer.planning.selection import select_calls


def growing(calls=5, *, system=100, step=200, **header):
    """One session: a system prompt of 100 tokens, prompts of 300, 500, … tokens with answers of 10."""
    builder = TraceBuilder(**header)
    main = builder.session()
    head = [builder.segment(system, role="system", type="system")]
    for number in range(calls):
        builder.call(main, [*(head if number == 0 else []), builder.segment(step)], output_tokens=10)
    return builder.trace()


class Fit(NamedTuple):
    """What is played, and of which trace."""

    trace: Trace
    fitted: Fitted


def fitted(trace, window_tokens, policy):
    selected = select_calls(trace.calls).calls
    window = Window(trace, selected, window_tokens=window_tokens, policy=policy)
    return Fit(window.trace, window.fit(selected))


def ids(fit):
    return [one.call.id for one in fit.fitted.calls]


def sizes(fit):
    prompts = PromptResolver(fit.trace.calls)
    return [prompt_size(fit.trace, prompts.segment_ids(call.id)) for call in fit.trace.calls]


def test_a_trace_that_fits_is_played_as_it_is():
    trace = growing()
    for policy in ("drop", "stop", "compact"):
        fit = fitted(trace, 1110, policy)
        assert (fit.trace is trace, ids(fit), fit.fitted.over, fit.fitted.left_out, fit.fitted.compacted) == (
            True, [0, 1, 2, 3, 4], (), (), (),
        )  # fmt: skip


def test_the_answer_has_to_fit_as_well():
    assert ids(fitted(growing(), 1109, "stop")) == [0, 1, 2, 3]


def test_stop_ends_the_session_before_the_first_call_that_does_not_fit():
    fit = fitted(growing(), 700, "stop")
    assert (ids(fit), fit.fitted.over, fit.fitted.left_out) == ([0, 1], (0,), (2, 3, 4))


def test_drop_leaves_the_session_out():
    fit = fitted(growing(), 700, "drop")
    assert (ids(fit), fit.fitted.over, fit.fitted.left_out) == ([], (0,), (0, 1, 2, 3, 4))


def test_other_trees_are_untouched():
    trace = make_trace(2, 1)
    assert ids(fitted(trace, 2000, "drop")) == [0, 1]


def parent_and_children():
    """Calls 0 and 3 of the main agent; between them a child that does not fit (call 1) with a child of its own (2)."""
    builder = TraceBuilder()
    main = builder.session()
    first = builder.call(main, [builder.segment(100)])
    child = builder.session(parent=main)
    big = builder.call(child, [builder.segment(5000)], after=[first])
    inner = builder.call(builder.session(parent=child), [builder.segment(50)], after=[big])
    builder.call(main, [builder.segment(50)], after=[first, big, inner])
    return builder.trace()


def test_sub_agents_of_what_is_left_out_are_left_out_and_the_parent_goes_on():
    for policy in ("drop", "stop"):
        fit = fitted(parent_and_children(), 1000, policy)
        assert ids(fit) == [0, 3]
        assert [dependency.call for dependency in fit.fitted.calls[1].after] == [0]


def test_compact_keeps_the_system_part_and_the_newest_that_fits_into_half():
    """The third prompt, 700 with its answer 710, is over 705: half is 352, so system and one message of 200 stay;
    the next two prompts add 200 each."""
    fit = fitted(growing(), 705, "compact")
    assert sizes(fit) == [300, 500, 300, 500, 300]
    assert (ids(fit), fit.fitted.over, fit.fitted.compacted, fit.fitted.left_out) == (
        [0, 1, 2, 3, 4],
        (0,),
        (2, 3, 4),
        (),
    )


def test_a_compacted_trace_keeps_the_rules_of_the_format():
    fit = fitted(growing(9), 705, "compact")
    assert [f for f in find_problems(enumerate(recorded_lines(fit.trace))) if f.is_error] == []


def test_a_session_that_cannot_be_compacted_ends():
    """The system part alone does not fit."""
    fit = fitted(growing(system=900), 705, "compact")
    assert (ids(fit), fit.fitted.left_out) == ([], (0, 1, 2, 3, 4))


def test_at_least_the_newest_segment_stays():
    """It is larger than half of the window, and fits into the whole."""
    fit = fitted(growing(3, step=300), 650, "compact")
    assert sizes(fit) == [400, 400, 400]


def test_a_prompt_that_the_recording_shortened_is_left_as_it_is():
    builder = TraceBuilder()
    main = builder.session()
    system = builder.segment(100, role="system", type="system")
    builder.call(main, [system, builder.segment(500)], output_tokens=10)
    builder.call(main, [builder.segment(500)], output_tokens=10)
    builder.call(main, [builder.segment(80)], keep=1, output_tokens=10)
    fit = fitted(builder.trace(), 1000, "compact")
    assert sizes(fit) == [600, 600, 180]
    assert fit.fitted.compacted == (1,)


def test_usage_of_a_prompt_that_was_cut_is_not_that_of_the_shorter_one():
    trace = growing(3)
    calls = [replace(call, usage=Usage(input_tokens=9, output_tokens=10)) for call in trace.calls]
    fit = fitted(replace(trace, calls=tuple(calls)), 705, "compact")
    assert [call.usage.input_tokens for call in fit.trace.calls] == [9, 9, None]


def test_bytes_are_measured_in_tokens():
    """At a quarter of a token per byte."""
    trace = growing(3, system=400, step=800, unit="bytes", block_size=256)
    assert ids(fitted(trace, 700, "stop")) == [0, 1]
