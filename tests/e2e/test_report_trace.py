"""`aitrace report TRACE` as a user runs it; its numbers against a computation in plain Python over the trace's lines."""

import re
from collections import defaultdict
from pathlib import Path

import orjson
import pytest
import zstandard
from click.testing import CliRunner

from aitrace.cli import main
from aitrace.schema import CallTimes, Outcome, ToolCall, Usage
from aitrace.store import write_trace
from aitrace.testing import TraceBuilder
from reports.browser import CHROMIUM, open_browser

ROOT = Path(__file__).parents[2]
RECORDED = ("recorded-claude-code", "recorded-codex", "recorded-opencode")
S = 10**9
needs_chromium = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed to open the page with")


def report(*args, **options):
    return CliRunner().invoke(main, ["report", *map(str, args)], **options)


def values_of(path, *options):
    result = report(path, "--json", "--no-html", *options)
    assert result.exit_code == 0, result.output
    return orjson.loads(result.stdout)


class Plain:
    """A trace read by hand: lines of JSON, updates put over their calls, prompts as lists of segments."""

    def __init__(self, path):
        data = zstandard.ZstdDecompressor().stream_reader(path.read_bytes(), read_across_frames=True).read()
        lines = [orjson.loads(line) for line in data.splitlines()]
        kinds = defaultdict(list)
        for line in lines:
            kinds[line["kind"]].append(line)
        for update in kinds["update"]:
            kinds["call"][update["call"]].update(
                {k: v for k, v in update.items() if k not in ("kind", "call")}
            )
        self.header, self.sessions, self.segments = kinds["header"][0], kinds["session"], kinds["segment"]
        self.calls = kinds["call"]
        self.prompts = []
        for call in self.calls:
            prompt = call["prompt"]
            kept = self.prompts[prompt["base"]][: prompt.get("keep", 0)] if "base" in prompt else []
            self.prompts.append(kept + prompt.get("add", []))

    def usage(self, call, name):
        return call.get("usage", {}).get(name)

    def blocks(self, call):
        """Every block of a prompt with its size."""
        found, block_size = [], self.header["block_size"]
        for number in self.prompts[call["id"]]:
            segment = self.segments[number]
            runs = segment["blocks"]
            ids = [
                first + i for first, count in zip(runs[::2], runs[1::2], strict=True) for i in range(count)
            ]
            sizes = (
                [block_size] * (len(ids) - 1) + [segment["size"] - block_size * (len(ids) - 1)] if ids else []
            )
            found += zip(ids, sizes, strict=True)
        return found

    def in_order(self):
        return sorted(self.calls, key=lambda call: (call["times"]["request_ns"], call["id"]))


@pytest.fixture(scope="module", params=RECORDED)
def pair(request):
    path = ROOT / "examples" / f"{request.param}.aitrace"
    return values_of(path), Plain(path)


def test_counts_and_sums_of_tokens_equal_those_of_the_lines(pair):
    value, plain = pair
    numbers = value["numbers"]

    def total(name):
        known = [tokens for call in plain.calls if (tokens := plain.usage(call, name)) is not None]
        return sum(known) if known else None

    assert numbers["calls"] == len(plain.calls) > 0
    assert numbers["sessions"] == len(plain.sessions)
    assert numbers["prompt_tokens"] == total("input_tokens")
    assert numbers["output_tokens"] == total("output_tokens")
    assert numbers["cache_write_5m_tokens"] == total("cache_write_5m_tokens")
    assert numbers["largest_prompt_tokens"] == max(
        plain.usage(call, "input_tokens") or 0 for call in plain.calls
    )


def test_what_was_possible_equals_a_search_of_every_prefix(pair):
    """Block by block over all prompts before, instead of a tree of runs."""
    value, plain = pair
    seen, possible, reported, total = set(), 0.0, 0, 0
    for call in plain.in_order():
        path, shared, alike = (call.get("model"),), 0, True
        for block, size in plain.blocks(call):
            path = hash((path, block, size))
            alike = alike and path in seen
            shared += size if alike else 0
            seen.add(path)
        size = sum(plain.segments[one]["size"] for one in plain.prompts[call["id"]])
        tokens, cached = plain.usage(call, "input_tokens"), plain.usage(call, "cache_read_tokens")
        if size and tokens and cached is not None:
            possible, reported, total = possible + shared / size * tokens, reported + cached, total + tokens
    numbers = value["numbers"]
    assert numbers["cache_prompt_tokens"] == total
    assert numbers["cache_reported_tokens"] == reported
    assert numbers["cache_possible_tokens"] == pytest.approx(possible, abs=1)


def test_gaps_by_cause_equal_those_of_the_lines(pair):
    value, plain = pair
    gaps = defaultdict(list)
    for call in plain.calls:
        known = [
            (wait["gap_ns"], wait.get("cause", "unknown"))
            for wait in call.get("after", [])
            if wait.get("trigger", "completion") == "completion" and wait.get("gap_ns") is not None
        ]
        if known:
            gap_ns, cause = min(known)
            gaps[cause].append(gap_ns)
    assert {row["cause"]: (row["n"], row["total_s"]) for row in value["tables"]["gap_lengths_by_cause"]} == {
        cause: (len(found), pytest.approx(sum(found) / S)) for cause, found in gaps.items()
    }


def test_run_times_of_tools_equal_those_of_the_lines(pair):
    value, plain = pair
    times, counts = defaultdict(list), defaultdict(int)
    for call in plain.calls:
        for tool in call.get("tool_calls") or []:
            counts[tool["name"]] += 1
            if tool.get("duration_ns") is not None:
                times[tool["name"]].append(tool["duration_ns"])
    rows = value["tables"]["tool_times"]
    assert {row["tool"]: (row["calls"], row["n"]) for row in rows} == {
        name: (count, len(times[name])) for name, count in counts.items()
    }
    total = sum(map(sum, times.values())) / S
    assert value["numbers"]["tool_run_s"] == (pytest.approx(total) if any(times.values()) else None)


def test_the_time_of_sessions_equals_their_lengths(pair):
    """Every moment from the first request to the last end is in exactly one state."""
    value, plain = pair
    lengths = []
    for session in plain.sessions:
        calls = [call for call in plain.calls if call["session"] == session["id"]]
        start = min(call["times"]["request_ns"] for call in calls)
        lengths.append(max(call["times"].get("end_ns", 0) for call in calls) - start)
    assert value["numbers"]["session_time_s"] == pytest.approx(sum(lengths) / S)
    durations = sorted(row["duration_s"] for row in value["tables"]["sessions"])
    assert durations == pytest.approx(sorted(length / S for length in lengths))
    shares = [row["time_ratio"] for row in value["tables"]["time_by_state"] if row["sessions"] == "all"]
    assert sum(shares) == pytest.approx(1)


def test_new_tokens_and_kept_ones_add_up_to_the_prompts(pair):
    """What each call of a conversation adds, plus what it shares with the prompt before, is its prompt."""
    value, plain = pair
    last, new = {}, 0.0
    for call in plain.in_order():
        if call.get("class") in ("auxiliary", "count_tokens"):
            continue
        prompt, before = plain.prompts[call["id"]], last.get(call["session"], [])
        size = sum(plain.segments[one]["size"] for one in prompt)
        # None of these recordings has a break.
        assert prompt[: len(before)] == before
        added = sum(plain.segments[one]["size"] for one in prompt[len(before) :])
        new += added / size * plain.usage(call, "input_tokens") if size else 0
        last[call["session"]] = prompt
    rows = value["tables"]["new_tokens_by_kind"]
    assert sum(row["first_tokens"] + row["later_tokens"] for row in rows) == pytest.approx(new, abs=len(rows))
    assert value["numbers"]["prefix_breaks"] == 0


def test_money_equals_that_of_the_lines(pair, tmp_path):
    _, plain = pair
    prices = tmp_path / "prices.json"
    table = {"input": 3, "cache_read": 0.25, "cache_write_5m": 4, "cache_write_1h": 6, "output": 15}
    prices.write_bytes(orjson.dumps({"*": table}))
    value = values_of(next(ROOT.glob(f"examples/{_name(plain)}")), "--prices", prices)
    cost = saved = 0.0
    for call in plain.calls:
        usage = call["usage"]
        cached = {name: usage.get(f"cache_{name}_tokens", 0) for name in ("read", "write_5m", "write_1h")}
        plainly = usage["input_tokens"] - sum(cached.values())
        paid = sum(count * table[f"cache_{name}"] for name, count in cached.items())
        cost += (plainly * 3 + paid + usage["output_tokens"] * 15) / 1e6
        saved += (sum(cached.values()) * 3 - paid) / 1e6
    assert value["numbers"]["cost_usd"] == pytest.approx(cost)
    assert value["numbers"]["saved_usd"] == pytest.approx(saved)
    assert value["numbers"]["unpriced_calls"] == 0


def _name(plain):
    harness = plain.sessions[0]["harness"]
    return f"recorded-{harness}.aitrace"


def test_breaks_of_a_converted_trace_equal_a_comparison_of_consecutive_prompts(tmp_path):
    """Blocks have 64 tokens, and the source does not tell what lies behind the last one of each prompt."""
    path = tmp_path / "converted.aitrace"
    data = ROOT / "tests" / "data" / "weka" / "trace_0282.json.zst"
    assert CliRunner().invoke(main, ["convert", str(data), "-o", str(path)]).exit_code == 0
    value, plain = values_of(path), Plain(path)
    last, lost_by_call, compared = {}, {}, 0
    for call in plain.in_order():
        blocks = plain.blocks(call)
        before = last.get(call["session"])
        if before is not None:
            compared += 1
            same = next(
                (i for i, pair in enumerate(zip(before, blocks, strict=False)) if pair[0] != pair[1]), None
            )
            same = min(len(before), len(blocks)) if same is None else same
            lost = sum(size for _, size in before[same:])
            if lost > 64:
                lost_by_call[call["id"]] = lost
        last[call["session"]] = blocks
    assert value["numbers"]["compared_prompts"] == compared > 50
    assert {row["call"]: row["lost_size"] for row in value["tables"]["prefix_breaks"]} == lost_by_call
    assert len(lost_by_call) == 4


def test_every_number_table_and_column_is_described(tmp_path):
    trace, prices = hostile_trace(tmp_path / "t.aitrace")
    value = values_of(trace, "--prices", prices)
    page = (ROOT / "docs" / "report-trace.md").read_text()
    described = set(re.findall(r"[a-z0-9_]+", page))
    assert (
        value["numbers"].keys() | value["tables"].keys() | value["trace"].keys() | value.keys() <= described
    )
    rows = [row for rows in value["tables"].values() for row in rows]
    assert {name for row in rows for name in row} <= described
    named = set(re.findall(r'name="([a-z_]+)"', (ROOT / "reports" / "recorded" / "doubts.py").read_text()))
    assert named == set(re.findall(r"^\| `([a-z_]+)` \| .* \| (?:yes|no|above .*) \|$", page, re.MULTILINE))


# The command


def test_the_page_is_written_beside_the_trace(tmp_path):
    trace = tmp_path / "mine.aitrace"
    trace.write_bytes((ROOT / "examples" / "recorded-codex.aitrace").read_bytes())
    result = report(trace)
    assert (result.exit_code, result.stdout.splitlines()[0]) == (0, "fine")
    assert result.stderr.splitlines()[-1] == f"wrote {tmp_path / 'mine.report.html'}"
    assert (tmp_path / "mine.report.html").read_text().startswith("<!doctype html>")


def test_a_trace_may_come_from_stdin_and_then_has_no_page_of_its_own(tmp_path):
    data = (ROOT / "examples" / "recorded-codex.aitrace").read_bytes()
    result = report("-", "--json", input=data)
    assert (result.exit_code, result.stderr) == (0, "")
    assert orjson.loads(result.stdout)["trace"]["name"] == "standard input"
    report("-", "-o", tmp_path / "page.html", input=data)
    assert (tmp_path / "page.html").exists()


def test_a_recording_that_was_cut_is_in_doubt_and_reported_as_far_as_it_goes(tmp_path):
    whole = zstandard.ZstdDecompressor().stream_reader(
        (ROOT / "examples" / "recorded-codex.aitrace").read_bytes(), read_across_frames=True
    )
    cut = tmp_path / "cut.aitrace.partial"
    cut.write_bytes(b"\n".join(whole.read().splitlines()[:-1]) + b"\n")
    result = report(cut)
    assert result.exit_code == 1
    assert result.stdout.startswith("in doubt: the trace has no footer")
    assert (tmp_path / "cut.aitrace.report.html").exists()


def test_a_damaged_trace_and_what_is_no_trace_are_bad_input(tmp_path):
    for name, data in (("noise", b"nonsense"), ("empty", b"")):
        (tmp_path / name).write_bytes(data)
        result = report(tmp_path / name)
        assert (result.exit_code, result.stdout) == (3, "")
    assert not list(tmp_path.glob("*.html"))


@pytest.mark.parametrize(
    ("prices", "message"),
    [
        ("{}x", "prices.json: not JSON"),
        (None, "prices.json: cannot be read"),
        ('{"a": 1}', "'a': expected an object, got 1"),
    ],
)
def test_a_price_table_that_is_none_is_wrong_use(tmp_path, prices, message):
    path = tmp_path / "prices.json"
    if prices is not None:
        path.write_text(prices)
    result = report(ROOT / "examples" / "recorded-codex.aitrace", "--no-html", "--prices", path)
    assert result.exit_code == 2
    assert message in result.stderr


def test_prices_are_for_traces_only(tmp_path):
    result = report(tmp_path, "--prices", tmp_path / "p.json")
    assert (result.exit_code, "--prices is for traces" in result.stderr) == (2, True)


def test_a_table_fits_a_terminal_and_is_not_coloured_in_a_pipe():
    result = report(ROOT / "examples" / "recorded-claude-code.aitrace", "--no-html", env={"COLUMNS": "60"})
    assert "\x1b" not in result.stdout
    assert max(map(len, result.stdout.splitlines())) <= 60


def test_the_terminal_shows_breaks_outcomes_and_money(tmp_path):
    builder = TraceBuilder(block_size=10)
    main_agent = builder.session()
    usage = Usage(input_tokens=2000, cache_read_tokens=1800, output_tokens=5)
    builder.call(main_agent, [builder.segment(1500), builder.segment(500)], usage=usage)
    for _ in range(20):
        builder.call(main_agent, usage=usage, cause="tool")
    builder.call(main_agent, [builder.segment(40)], keep=1, usage=usage)
    builder.call(main_agent, outcome=Outcome(error="refused", status=529), usage=Usage())
    write_trace(tmp_path / "t.aitrace", builder.trace())
    prices = tmp_path / "prices.json"
    prices.write_bytes(orjson.dumps({"*": {"input": 1, "cache_read": 1, "output": 1}}))
    shown = report(tmp_path / "t.aitrace", "--no-html", "--prices", prices, env={"COLUMNS": "160"}).stdout
    for title in (
        "The breaks that lost most",
        "Lost reuse",
        "Outcomes",
        "Money",
        "cost $0.0441, saved by caching $0.00",
    ):
        assert title in shown
    assert "After gaps of 1 s – 10 s, 100.0 % of calls found their session's prefix in the cache" in " ".join(
        shown.split()
    )


# The page


INJECTION = '<img src=x onerror="document.documentElement.dataset.hacked=1">{0}</script><script>document.title="x"</script>'


def hostile_trace(path):
    """A trace whose every string is an attempt."""
    builder = TraceBuilder(
        block_size=10,
        producer=f"p {INJECTION.format('producer')}",
        source=INJECTION.format("source"),
        attribution=INJECTION.format("attribution"),
        unknown=(INJECTION.format("unknown"),),
    )
    text = INJECTION.format
    main_agent = builder.session(
        harness=text("harness"), label=text("label"), harness_version=text("version")
    )
    child = builder.session(parent=main_agent, agent=text("agent"), harness=text("other"))
    tools = (ToolCall(name=text("tool"), duration_ns=S),)
    usage = Usage(input_tokens=100, cache_read_tokens=5, output_tokens=5)
    for session in (main_agent, child):
        builder.call(session, [builder.segment(100)], model=text("model"), tool_calls=tools, usage=usage)
        builder.call(session, [builder.segment(9)], keep=0, model=text("model"), cause="tool", usage=usage)
    builder.call(main_agent, times=CallTimes(request_ns=99 * S), model="\x1b[31mred\x07", usage=usage)
    write_trace(path, builder.trace())
    prices = path.with_name("prices.json")
    prices.write_bytes(orjson.dumps({"*": {"input": 1, "cache_read": 1, "output": 1}}))
    return path, prices


def test_what_strangers_wrote_cannot_become_markup(tmp_path):
    trace, prices = hostile_trace(tmp_path / "t.aitrace")
    assert report(trace, "--prices", prices, "-o", tmp_path / "page.html").exit_code == 0
    text = (tmp_path / "page.html").read_text()
    for name in (
        "producer",
        "source",
        "attribution",
        "unknown",
        "harness",
        "label",
        "version",
        "agent",
        "tool",
        "model",
    ):
        assert f"{name}&lt;/script&gt;" in text
    assert "<img" not in re.sub(r"(?s)<script.*?</script>", "", text)
    assert 'document.title="x"' not in text.replace("document.title=&#34;x&#34;", "")


def test_what_strangers_wrote_cannot_steer_a_terminal(tmp_path):
    trace, _ = hostile_trace(tmp_path / "t.aitrace")
    shown = report(trace, "--no-html").stdout
    assert "\x1b" not in shown
    assert "\x07" not in shown


@needs_chromium
@pytest.mark.parametrize("width", [1280, 800, 400])
def test_the_page_draws_every_figure_without_a_network_or_an_error(tmp_path, width):
    trace, prices = hostile_trace(tmp_path / "t.aitrace")
    assert report(trace, "--prices", prices, "-o", tmp_path / "page.html").exit_code == 0
    with open_browser(tmp_path / "profile") as browser:
        page = browser.open(tmp_path / "page.html", width=width)
        page.draw_all()
        assert page.faults() == []
        assert page.value("document.documentElement.dataset.hacked === undefined")
        assert page.value("document.title") == "aitrace report: t.aitrace"
        assert page.value("document.querySelectorAll('img').length") == 0
        assert page.value("document.documentElement.scrollWidth <= window.innerWidth")
