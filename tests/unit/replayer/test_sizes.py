from dataclasses import replace

from aitrace.columns import call_columns
from aitrace.schema import Usage
from aitrace.testing import TraceBuilder, make_call, make_trace
from replayer.planning.sizes import output_tokens, prompt_sizes, token_ratio, usual_output_tokens


def calls_with(*outputs):
    return [make_call(n, usage=Usage(output_tokens=tokens)) for n, tokens in enumerate(outputs)]


def test_a_trace_in_tokens_needs_no_ratio():
    ratio = token_ratio(make_trace(1, 2, unit="tokens"))
    assert (ratio.tokens_per_unit, ratio.note) == (1.0, None)


def test_the_ratio_is_reported_tokens_over_bytes_of_the_same_prompts():
    builder = TraceBuilder(unit="bytes", block_size=256)
    for size, reported in ((1000, 300), (3000, 500), (9999, None)):
        builder.call(builder.session(), [builder.segment(size)], usage=Usage(input_tokens=reported))
    ratio = token_ratio(builder.trace())
    assert ratio.tokens_per_unit == 800 / 4000
    assert "0.2000 tokens per byte, from the usage reported for 2 of 3 calls" in ratio.note


def test_the_ratio_leaves_out_prompts_whose_start_was_not_seen():
    """Their reported tokens count what their size does not."""
    builder = TraceBuilder(unit="bytes", block_size=256)
    for reported, unseen_start in ((250, False), (90_000, True)):
        usage = Usage(input_tokens=reported)
        builder.call(builder.session(), [builder.segment(1000)], usage=usage, unseen_start=unseen_start)
    ratio = token_ratio(builder.trace())
    assert ratio.tokens_per_unit == 0.25
    assert "from the usage reported for 1 of 2 calls" in ratio.note


def test_without_usage_a_quarter_of_a_token_per_byte_is_assumed_and_noted():
    builder = TraceBuilder(unit="bytes", block_size=256)
    builder.call(builder.session(), [builder.segment(1000)], usage=Usage())
    ratio = token_ratio(builder.trace())
    assert ratio.tokens_per_unit == 0.25
    assert "0.25 tokens per byte is assumed" in ratio.note


def test_usage_of_empty_prompts_gives_no_ratio():
    builder = TraceBuilder(unit="bytes", block_size=256)
    builder.call(builder.session(), usage=Usage(input_tokens=9))
    assert token_ratio(builder.trace()).tokens_per_unit == 0.25


def test_a_prompt_is_as_long_as_its_segments():
    assert prompt_sizes(make_trace(1, 3)).tolist() == [1200, 1600, 2000]


def test_an_answer_of_unknown_length_is_the_median_of_the_others():
    calls = calls_with(10, None, 40, 30)
    assert output_tokens(calls).tolist() == [10, 30, 40, 30]


def test_without_any_known_answer_one_token_is_taken():
    assert usual_output_tokens(calls_with(None, None)) == 1


def test_an_answer_has_at_least_one_token():
    assert output_tokens(calls_with(0, None)).tolist() == [1, 1]


class Bringing(tuple):
    """Calls that bring their columns along, as those of a stored trace do."""

    __slots__ = ()

    @property
    def columns(self):
        return call_columns(
            replace(make_trace(), sessions=make_trace().sessions[:1], segments=(), calls=tuple(self))
        )


def test_answers_of_a_stored_trace_are_taken_from_its_columns():
    calls = Bringing(calls_with(10, None, 40))
    assert output_tokens(calls).tolist() == [10, 10, 40]
    assert usual_output_tokens(calls) == 10
