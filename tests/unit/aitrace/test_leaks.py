from pathlib import Path

import orjson
import pytest
from click.testing import CliRunner

from aitrace.cli import main
from aitrace.codec import encode_line
from aitrace.leaks import LeakScan, find_leaks, masked, warning_lines
from aitrace.no_text import FORMAT_WORDS, WELL_KNOWN_AGENTS, WELL_KNOWN_TOOLS
from aitrace.schema import Header, Session
from aitrace.store import TraceReader
from aitrace.testing import make_trace, recorded_lines

ROOT = Path(__file__).parents[3]
ROOTS_HOME = "/root"
HASH = "4c1d0e8a77b2f3a94c1d0e8a77b2f3a9"
UUID = "0a1b2c3d-0000-4000-8000-0123456789ab"


def leaks(text, known=()):
    return find_leaks(orjson.dumps({"kind": "session", "x": text}) + b"\n", known)


@pytest.mark.parametrize(
    ("text", "kind", "length"),
    [
        ("sk-ant-api03-abcdefghijkl", "an API key", 25),
        ("sk-proj-abcdefghijkl", "an API key", 20),
        ("AIza" + "b" * 35, "an API key", 39),
        ("xai-" + "b" * 80, "an API key", 84),
        ("gsk_" + "b" * 40, "an API key", 44),
        ("hf_" + "b" * 34, "an API key", 37),
        ("sk_live_" + "b" * 24, "an API key", 32),
        ("ghp_" + "b" * 36, "a GitHub token", 40),
        ("github_pat_" + "b" * 40, "a GitHub token", 51),
        ("xoxb-123456789012-abcdef", "a Slack token", 24),
        ("https://hooks.slack.com/services/T00/B00", "a Slack address", 32),
        ("AKIAABCDEFGHIJKLMNOP", "an AWS key", 20),
        ("eyJhbGciOiJ.eyJzdWIiOiI.abc", "a JSON web token", 27),
        ("Authorization: Bearer abcdefghijkl", "credentials of a header", 19),
        ("-----BEGIN OPENSSH PRIVATE KEY-----\nb3Bl", "a private key or certificate", 35),
        ("https://ann:hunter2@example.org/", "an address with a password", 15),
        ("write to ann.b+c@mail.example.org.", "an e-mail address", 24),
        ("/home/ann/work", "a home path", 9),
        ("file:///Users/ann", "a home path", 10),
        (f"{ROOTS_HOME}/.ssh/id", "a home path", 6),
        ("C:\\Users\\ann", "a home path", 12),
        ("c:/Users/ann/x", "a home path", 12),
        ("in ~ann today", "a home path", 4),
        ("~/work", "a home path", 2),
        ("toolu_01AbCdEfGhIjKlMnOpQrStUv", "an id as services make them", 30),
        ("user-abcdefghijklmnop", "an id as services make them", 21),
        (UUID, "a UUID", 36),
        (HASH, "a run of hexadecimal digits", 32),
        (HASH.upper(), "a run of hexadecimal digits", 32),
        ("aB3" * 8, "a run of random characters", 24),
        ("aB3/" * 10, "a run of random characters", 40),
        ("abcdefghijklmnopqrstuvwxyz==", "a run of random characters", 28),
    ],
)
def test_what_is_found_is_told_by_its_kind_and_length(text, kind, length):
    found = leaks(text)
    assert f"line 1: {kind} of {length} bytes" in found
    assert text not in str(found)


@pytest.mark.parametrize(
    "text",
    [
        "task-abcdefghijklmnop",
        "claude-opus-4-5-20251101",
        "claude-sonnet-4@20250514",
        "claude-code/billing-block@1.2",
        "Qwen/Qwen3-Coder-480B-A35B-Instruct-FP8",
        "accounts/fireworks/models/Qwen3-Coder-480B-A35B-Instruct",
        "nvidia/Llama-3_1-Nemotron-Ultra-253B-v1-FP8",
        "meta-llama/Llama-4-Maverick-17B-128E-Instruct-FP8",
        "arn:aws:bedrock:us-east-1:123456789012:inference-profile/us.anthropic.claude-opus-4",
        "xai-grok-code-fast-1-latest",
        "queue_high_water_calls",
        "a" * 200,
        "5 ~ 6 and ~7",
        "Ann Example & Söhne, see <https://example.org/homes>",
    ],
)
def test_names_and_sentences_are_no_secrets(text):
    assert leaks(text) == []


@pytest.mark.parametrize(
    ("key", "text", "is_allowed"),
    [
        ("label", UUID, True),
        ("agent", UUID, False),
        ("label", HASH, True),
        ("agent", HASH, True),
        ("name", HASH, True),
        ("model", HASH, False),
        ("label", HASH * 2, True),
        ("label", HASH * 2 + "0", False),
        ("attribution", "Ann <ann@example.org>, CC BY 4.0", True),
        ("source", "ann@example.org", False),
    ],
)
def test_some_fields_may_hold_what_others_may_not(key, text, is_allowed):
    scan = LeakScan()
    line = orjson.dumps({key: text})
    # The second look finds what the first did.
    assert [is_allowed, is_allowed] == [list(scan.leaks(number, line)) == [] for number in (1, 2)]


def test_what_one_field_may_hold_is_found_in_another_of_the_same_line():
    line = orjson.dumps({"label": UUID, "x": UUID})
    assert find_leaks(line) == ["line 1: a UUID of 36 bytes"]
    assert find_leaks(orjson.dumps({"label": UUID}) + b"\n" + orjson.dumps({UUID: "label"})) == [
        "line 2: a UUID of 36 bytes"
    ]


def test_lines_are_counted_from_1_and_each_finding_is_told_once_a_line():
    data = b'{}\n\n{"x":"~/a","y":"~/a"}\n{"z":"~/a"}'
    assert find_leaks(data) == ["line 3: a home path of 2 bytes", "line 4: a home path of 2 bytes"]


def test_an_escaped_secret_is_found():
    assert find_leaks(b'{"x":"\\u0061nn@ex\\u0061mple.org"}') == ["line 1: an e-mail address of 15 bytes"]
    assert find_leaks(b'{"x":"\\q ann@example.org"}') == ["line 1: an e-mail address of 15 bytes"]


@pytest.mark.parametrize(
    "data",
    [b"ann@example.org", b'{"x": ann@example.org}', b'{"x":"ann@example.org', b'"a" ann@example.org "b"'],
)
def test_what_is_no_json_is_looked_at_as_a_whole(data):
    assert "line 1: an e-mail address of 15 bytes" in find_leaks(data)


# --- known strings ---


@pytest.mark.parametrize(
    ("text", "is_found"),
    [
        ("mcp__acme__pay", True),
        ("see mcp__acme__payroll", True),
        ("mcp__acme__pa", False),
        ("MCP__ACME__PAY", False),
        ("", False),
    ],
)
def test_a_known_string_is_found_within_others(text, is_found):
    found = leaks(text, ["mcp__acme__pay", "mcp__acme__pax", "tiny"])
    assert found == (["line 1: a known string of 14 bytes"] if is_found else [])


@pytest.mark.parametrize(
    ("text", "is_found"), [("search", True), ("a search", True), ("gpt-search-2", False)]
)
def test_a_known_plain_word_is_found_where_it_stands_alone(text, is_found):
    assert leaks(text, ["search"]) == (["line 1: a known name of 6 bytes"] if is_found else [])


@pytest.mark.parametrize("known", ["session", "output_tokens", "Explore", "client_abort", "short", "x" * 5])
def test_words_of_the_format_and_short_strings_are_not_looked_for(known):
    data = b"".join(map(encode_line, recorded_lines(make_trace())))
    assert find_leaks(data + b'{"x":"short xxxxx Explore"}', [known]) == []


@pytest.mark.parametrize("known", ["claude-code", "opencode", "aitrace", "recorder", "completed", "tool_use"])
def test_names_of_harnesses_and_usual_finish_reasons_are_no_secret_of_who_uses_them_too(known):
    """Somebody's agent may be called `opencode`: the trace says that word of everybody."""
    session = Session(id=0, root=0, harness="claude-code", evidence=("claude-code/session-header",))
    lines = [Header(producer="aitrace 0.1", unit="bytes", block_size=1, source="recorder"), session]
    data = b"".join(map(encode_line, lines)) + b'{"finish":"completed","x":"tool_use opencode"}'
    assert find_leaks(data, [known]) == []


def test_a_known_string_is_found_as_a_name_of_a_field_and_as_it_is_escaped():
    known = 'he said "hi"\n\\o/ é'
    assert len(find_leaks(orjson.dumps({known: 1}), [known])) == 1
    assert len(find_leaks(b'{"x":"he said \\"hi\\"\\u000a\\\\o/ \\u00e9"}', [known])) == 1


def test_a_known_string_that_is_no_unicode_does_no_harm():
    assert leaks("fine", ["\ud800abcdef"]) == []


def test_the_memory_of_strings_is_bounded(monkeypatch):
    monkeypatch.setattr("aitrace.leaks._MOST_REMEMBERED", len(FORMAT_WORDS) + 5)
    scan = LeakScan()
    texts = [f"text {i}" if i % 2 else f"~user{i}" for i in range(50)]
    found = [bool(list(scan.leaks(1, orjson.dumps({"x": text})))) for text in texts]
    assert found == [i % 2 == 0 for i in range(50)]
    assert len(scan._clear) + len(scan._found) <= len(FORMAT_WORDS) + 6


def test_the_words_of_the_format_are_its_fields_and_closed_sets():
    assert WELL_KNOWN_TOOLS | WELL_KNOWN_AGENTS < FORMAT_WORDS
    assert {"header", "blocks", "unseen_start", "websocket", "unrecorded", "tool_result"} < FORMAT_WORDS


# --- no false alarm ---


def leaks_of_file(path):
    scan = LeakScan()
    lines = list(TraceReader(path).raw_lines())
    return len(lines), [str(leak) for number, data in lines for leak in scan.leaks(number, data)]


@pytest.mark.parametrize(
    "path",
    [*sorted((ROOT / "examples").glob("*.aitrace")), *sorted((ROOT / "tests" / "golden").rglob("*.aitrace"))],
)
def test_traces_of_the_repository_have_no_leak(path):
    lines, found = leaks_of_file(path)
    assert (lines > 3, found) == (True, [])


@pytest.mark.parametrize(
    "source", ["weka/*.json.zst", "mooncake/conversation_600*", "mooncake/synthetic_1500*"]
)
def test_what_the_importers_write_has_no_leak(tmp_path, source):
    target = str(tmp_path / "x.aitrace")
    paths = sorted(map(str, (ROOT / "tests" / "data").glob(source)))
    assert CliRunner().invoke(main, ["convert", *paths, "-o", target]).exit_code == 0
    lines, found = leaks_of_file(target)
    assert (lines > 100, found) == (True, [])


def test_a_warning_names_the_file_and_some_of_what_was_found():
    assert warning_lines(["one", "two", "three"], "x.aitrace.partial", most=2) == [
        "DO NOT SHARE x.aitrace.partial: it may hold text or a secret, so it was not given its final name",
        "  one",
        "  two",
        "  and 1 more",
    ]
    assert warning_lines(["one"], None, most=2) == [
        "the trace may hold text or a secret, so it was not written",
        "  one",
    ]


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("rate limit reached", "rate limit reached"),
        ("bad key sk-0123456789abcdef01, ä", "bad key [an API key], ä"),
        ("see /home/ann/x or ann@example.org", "see [a home path]/x or [an e-mail address]"),
        ("block 000000000000000000000000 of abcdef0123456789abcdef01", "block 000000000000000000000000 of [a run of hexadecimal digits]"),
        ("\udc80 x", "? x"),
    ],
)  # fmt: skip
def test_a_text_is_masked_where_it_looks_like_a_secret(text, written):
    assert written == masked(text)
