"""`aitrace replay` against llama.cpp's server: what the run says is compared with what went over the wire and with the
engine's counters. Its cache, its queue and its tokenizer are real; the model's answer is known.
"""

import re

import orjson
import pytest
from playing import agents, by_index, conversations, growth, play
from starting import counter, llama_server
from tap import tapped

from reports.summary import report_from_facts
from reports.tables import facts_from_run

COUNTERS = {
    "cached": "llamacpp:prompt_tokens_cached_total",
    "computed": "llamacpp:prompt_tokens_total",
    "predicted": "llamacpp:tokens_predicted_total",
}
ANSWER_TOKENS = 257
"""The model's answer with its end."""
PROTOCOLS = ["chat", "responses", "anthropic"]
TIMED = ["chat", "responses"]
"""Protocols in which it tells its own counts and times for each answer."""


@pytest.fixture(scope="module")
def llama(engines, model, tmp_path_factory):
    with llama_server(engines, model, tmp_path_factory.mktemp("llama")) as running:
        yield running


def counters(llama) -> dict[str, float]:
    return {name: counter(llama.metrics_url, series) for name, series in COUNTERS.items()}


@pytest.mark.parametrize("protocol", TIMED)
def test_tokens_of_every_call_are_those_that_the_engine_tells_of_it(llama, tmp_path, protocol):
    with tapped(llama.url) as tap:
        run = play(agents(), tmp_path, tap.url, "--protocol", protocol, "--time-scale", "0.1")
    theirs = {name: exchange.said("timings") for name, exchange in tap.by_request_id().items()}
    told = [
        (timings["cache_n"], timings["cache_n"] + timings["prompt_n"], timings["predicted_n"])
        for timings in (theirs[call.request_id] for call in by_index(run))
    ]
    ours = [
        (call.usage.cache_read_tokens, call.usage.input_tokens, call.usage.output_tokens)
        for call in by_index(run)
    ]
    assert ours == told
    # The sub-agents' second calls go on from their first, and nothing else has run in their slots.
    assert [cached > 600 for cached, _, _ in ours].count(True) >= 2


def test_cached_tokens_of_messages_are_those_at_the_start_of_their_stream(llama, tmp_path):
    with tapped(llama.url) as tap:
        run = play(agents(), tmp_path, tap.url, "--protocol", "anthropic", "--time-scale", "0.1")
    theirs = {name: exchange.said("message")["usage"] for name, exchange in tap.by_request_id().items()}
    told = [
        (usage["cache_read_input_tokens"], usage["cache_read_input_tokens"] + usage["input_tokens"])
        for usage in (theirs[call.request_id] for call in by_index(run))
    ]
    assert [(call.usage.cache_read_tokens, call.usage.input_tokens) for call in by_index(run)] == told


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_what_calls_say_adds_up_to_the_engines_counters(llama, tmp_path, protocol):
    # The ratio is given and the engine known, so that but for one probe before the run nothing else is counted.
    given = ("--tokens-per-word", "1")
    with tapped(llama.url) as tap:
        before = counters(llama)
        run = play(agents(), tmp_path, tap.url, "--protocol", protocol, "--time-scale", "0.1", *given)
        counted = {name: value - before[name] for name, value in counters(llama).items()}
    usages = [call.usage for call in run.calls]
    cached, total, output = (
        sum(getattr(usage, name) for usage in usages)
        for name in ("cache_read_tokens", "input_tokens", "output_tokens")
    )
    names = ("prefix_hit_tokens", "prompt_tokens", "output_tokens")
    assert [growth(run, name) for name in names] == [cached, total, output]
    # The probe asks for 200 words and an answer of 2 tokens.
    assert counted["predicted"] == output + 2
    assert 200 <= counted["cached"] + counted["computed"] - total < 300


def tokens_by_hand(body: dict) -> int:
    """Tokens of a chat prompt with the model's template: words are tokens, the letters of a role are too."""
    messages = body["messages"]
    words = sum(len(message["content"].split()) for message in messages)
    frames = sum(len(f"<{message['role']}\n>\n") for message in messages)
    return words + frames + len("<assistant\n")


def test_prompts_have_the_planned_words_and_the_tokens_that_these_make(llama, tmp_path):
    with tapped(llama.url) as tap:
        run = play(agents(), tmp_path, tap.url, "--protocol", "chat", "--time-scale", "0")
    bodies = {name: orjson.loads(one.body) for name, one in tap.by_request_id().items()}
    for call in run.calls:
        assert call.usage.input_tokens == tokens_by_hand(bodies[call.request_id])
        # The probe's one message is a frame of 20 tokens; every further message is 8 to 13 that no trace knows of.
        further = len(bodies[call.request_id]["messages"]) - 1
        assert 0 <= call.usage.input_tokens - call.prompt_tokens <= 22 + 13 * further
    assert run.header.calibration.tokens_per_word == pytest.approx(1.0, abs=0.001)


@pytest.mark.parametrize("protocol", TIMED)
def test_answers_are_forced_beyond_the_models_own_end(llama, tmp_path, protocol):
    planned = ANSWER_TOKENS + 50
    trace = conversations(1, 2, output_tokens=planned)
    run = play(trace, tmp_path, llama.url, "--protocol", protocol, "--time-scale", "0")
    assert [call.usage.output_tokens for call in run.calls] == [planned] * 2
    assert [call.token_events for call in run.calls] == [planned] * 2


def test_messages_cannot_be_forced_and_the_report_says_so(llama, tmp_path):
    trace = conversations(1, 2, output_tokens=2 * ANSWER_TOKENS)
    run = play(trace, tmp_path, llama.url, "--protocol", "anthropic", "--time-scale", "0")
    assert [call.usage.output_tokens for call in run.calls] == [ANSWER_TOKENS] * 2
    report = report_from_facts(facts_from_run(run.header, run.end, run.calls, run.scrapes, None))
    assert any(re.search("output|answers", doubt.what) for doubt in report.doubts), report.doubts


def test_no_call_reaches_the_engine_before_its_gap_is_over(llama, tmp_path):
    trace = conversations(2, 4)
    with tapped(llama.url) as tap:
        run = play(trace, tmp_path, tap.url, "--protocol", "chat", "--time-scale", "0.3")
    exchanges = tap.by_request_id()
    gaps_ns = []
    calls = by_index(run)
    for call in (call for call in calls if call.turn_index > 0):
        earlier = next(
            other
            for other in calls
            if (other.session, other.turn_index) == (call.session, call.turn_index - 1)
        )
        waited_ns = exchanges[call.request_id].arrived_ns - exchanges[earlier.request_id].ended_ns
        assert waited_ns >= call.gap_ns
        gaps_ns.append(call.gap_ns)
    assert gaps_ns == [300_000_000] * 6


def test_connections_that_it_closes_after_each_answer_without_a_word_lose_no_call(llama, tmp_path):
    before = counters(llama)
    run = play(conversations(2, 20), tmp_path, llama.url, "--protocol", "chat", "--time-scale", "0")
    predicted = counters(llama)["predicted"] - before["predicted"]
    assert [call.error for call in run.calls] == [None] * 40
    # It promises to keep them (`Keep-Alive: timeout=5`); whether that is noticed in time is a matter of luck.
    assert {call.new_connection for call in run.calls} == {True}
    # Nothing was answered twice: the two probes ask for 2 tokens each.
    assert predicted == sum(call.usage.output_tokens for call in run.calls) + 4


def test_calls_beyond_its_slots_wait_without_headers_and_that_is_seen(llama, tmp_path):
    trace = conversations(4, 1, output_tokens=2000)
    with tapped(llama.url) as tap:
        run = play(trace, tmp_path, tap.url, "--protocol", "chat", "--metrics-every", "0.05")
    calls = sorted(run.calls, key=lambda call: call.headers_ns)
    # Slots are free a moment before the client has their last token, so the middle of the answer is what tells.
    middle_ns = min((call.first_token_ns + call.last_token_ns) // 2 for call in calls[:2])
    assert [call.headers_ns < middle_ns for call in calls] == [True, True, False, False]
    assert max(scrape.values["waiting"] for scrape in run.scrapes if not scrape.error) == 2
    # None of it can have been quicker than the engine says that its prefill was.
    for call in calls:
        prefill_ns = tap.by_request_id()[call.request_id].said("timings")["prompt_ms"] * 1e6
        assert call.first_token_ns - call.sent_ns > prefill_ns
