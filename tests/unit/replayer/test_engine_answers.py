"""What is answered, and how long it is."""

import pytest

from aitrace.protocols.protocol import MalformedRequestError, Request, RequestPart
from replayer.engine.answers import Answer, plan_answer
from replayer.engine.options import EngineOptions

USER = RequestPart(role="user", type="text", text="hello")
CALL = RequestPart(role="assistant", type="tool_use", text="{}", tool_name="Read")
RESULT = RequestPart(role="user", type="tool_result", text="found")


def request(
    *,
    limit: int | None = None,
    tools: tuple[str | None, ...] = (),
    said: tuple[RequestPart, ...] = (USER,),
    **body,
) -> Request:
    parts = [
        *(RequestPart(role="system", type="tool_definition", text="{}", tool_name=name) for name in tools),
        *said,
    ]
    return Request(model="m", stream=False, max_output_tokens=limit, parts=tuple(parts), body=body)


def length(options: EngineOptions | None = None, key: int = 1, **fields) -> int:
    return len(plan_answer(request(**fields), options or EngineOptions(), key).words)


def test_the_same_prompt_gets_the_same_answer():
    assert plan_answer(request(), EngineOptions(), 5) == plan_answer(request(), EngineOptions(), 5)


def test_another_prompt_or_another_seed_gets_another_answer():
    usual = plan_answer(request(limit=20, ignore_eos=True), EngineOptions(), 5).words
    assert usual != plan_answer(request(limit=20, ignore_eos=True), EngineOptions(), 6).words
    assert usual != plan_answer(request(limit=20, ignore_eos=True), EngineOptions(seed=1), 5).words


def test_lengths_are_drawn_from_the_whole_range_and_nowhere_else():
    drawn = {length(EngineOptions(answer_tokens=(3, 6)), key) for key in range(200)}
    assert {3, 4, 5, 6} == drawn


@pytest.mark.parametrize("limit", [1, 19, 20, 5000])
def test_ignore_eos_gives_exactly_the_limit(limit):
    answer = plan_answer(request(limit=limit, ignore_eos=True), EngineOptions(), 1)
    assert (limit, "length") == (len(answer.words), answer.finish)


def test_ignore_eos_without_a_limit_gives_the_longest_answer():
    assert length(EngineOptions(answer_tokens=(3, 9)), ignore_eos=True) == 9


def test_a_limit_below_the_drawn_length_cuts():
    answer = plan_answer(request(limit=2), EngineOptions(answer_tokens=(3, 9)), 1)
    assert (len(answer.words), answer.finish) == (2, "length")


def test_a_limit_that_is_not_reached_does_not():
    answer = plan_answer(request(limit=3), EngineOptions(answer_tokens=(3, 3)), 1)
    assert (len(answer.words), answer.finish) == (3, "stop")


def test_min_tokens_lengthens_an_answer():
    assert length(EngineOptions(answer_tokens=(3, 9)), min_tokens=50) == 50
    assert length(EngineOptions(answer_tokens=(60, 60)), min_tokens=50) == 60


@pytest.mark.parametrize(
    "fields",
    [
        {"limit": 5, "min_tokens": 6},
        {"min_tokens": -1},
        {"min_tokens": True},
        {"min_tokens": "6"},
        {"ignore_eos": 1},
        {"limit": 0},
    ],
)
def test_limits_that_make_no_sense_are_malformed(fields):
    with pytest.raises(MalformedRequestError, match="expected"):
        length(**fields)


def test_null_fields_are_as_absent_ones():
    usual = plan_answer(request(), EngineOptions(), 1)
    assert usual == plan_answer(request(ignore_eos=None, min_tokens=None), EngineOptions(), 1)


def test_reasoning_comes_on_top_of_the_drawn_length():
    answer = plan_answer(request(), EngineOptions(answer_tokens=(3, 3), reasoning_tokens=4), 1)
    assert list(answer.runs(0, 7)) == [("reasoning", 0, 4), ("content", 4, 7)]


def test_reasoning_leaves_a_token_of_text():
    answer = plan_answer(request(limit=3), EngineOptions(reasoning_tokens=4), 1)
    assert list(answer.runs(0, 3)) == [("reasoning", 0, 2), ("content", 2, 3)]


def test_a_tool_call_ends_the_answer_and_names_the_first_tool_with_a_name():
    options = EngineOptions(answer_tokens=(20, 20), tool_call=True)
    answer = plan_answer(request(tools=(None, "Read", "Bash")), options, 1)
    assert (answer.tool_name, answer.finish) == ("Read", "tool_call")
    assert list(answer.runs(0, 20)) == [("content", 0, 12), ("tool_call", 12, 20)]


def test_without_tools_nothing_is_called():
    options = EngineOptions(answer_tokens=(20, 20), tool_call=True)
    assert (
        plan_answer(request(), options, 1).tool_name,
        plan_answer(request(), options, 1).finish,
    ) == ("", "stop")


def test_tools_are_not_called_unless_asked_for():
    assert plan_answer(request(tools=("Read",)), EngineOptions(), 1).tool_call_tokens == 0


@pytest.mark.parametrize(
    ("said", "calls"),
    [
        ((USER, CALL, RESULT), False),
        ((USER, CALL, RESULT, USER), False),
        ((RESULT,), False),
        ((USER, CALL, RESULT, CALL, USER), True),
        ((), True),
    ],
)
def test_the_answer_to_a_tools_result_calls_no_tool(said, calls):
    """Or an agent would never come to an end."""
    answer = plan_answer(request(tools=("Read",), said=said), EngineOptions(tool_call=True), 1)
    assert (answer.tool_call_tokens > 0) == calls


@pytest.mark.parametrize(
    "fields",
    [{"limit": 250_001, "ignore_eos": True}, {"min_tokens": 250_001}, {"min_tokens": 2**62, "limit": 2**63}],
)
def test_an_answer_too_long_to_hold_is_malformed(fields):
    with pytest.raises(MalformedRequestError, match="expected at most 250000"):
        length(**fields)


def test_a_limit_that_no_answer_reaches_may_be_of_any_size():
    assert length(EngineOptions(answer_tokens=(3, 3)), limit=2**63) == 3


def test_one_token_is_no_room_for_a_tool_call():
    answer = plan_answer(request(limit=1, tools=("Read",)), EngineOptions(tool_call=True), 1)
    assert (answer.tool_name, answer.finish) == ("", "length")


def test_runs_are_the_asked_part_split_by_kind():
    answer = Answer(words=(b"a",) * 6, reasoning_tokens=2, tool_call_tokens=2, tool_name="Read")
    assert list(answer.runs(1, 5)) == [("reasoning", 1, 2), ("content", 2, 4), ("tool_call", 4, 5)]
    assert list(answer.runs(3, 3)) == []


def test_the_text_of_a_kind_is_its_words_with_spaces_between():
    answer = Answer(words=(b"one", b"two", b"three"), reasoning_tokens=2)
    assert tuple(map(answer.text, ("reasoning", "content", "tool_call"))) == (b"one two", b"three", b"")
