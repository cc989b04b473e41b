import re
from pathlib import Path

import orjson
import pytest
from click.testing import CliRunner

from aitrace.cli import SUMMARIES, main
from aitrace.codec import encode_line
from aitrace.store import read_trace, write_trace
from aitrace.testing import make_trace
from replayer.commands.plan import plan
from replayer.commands.replay import replay
from replayer.planning.options import LoadOptions
from replayer.planning.plan_summary import PlanSummary

ROOT = Path(__file__).parents[3]


@pytest.fixture
def trace_path(tmp_path):
    path = tmp_path / "small.aitrace"
    write_trace(path, make_trace(3, 4))
    return str(path)


def run(*arguments):
    return CliRunner().invoke(main, ["plan", *arguments])


def shown(*arguments):
    result = run(*arguments, "--json")
    assert result.exit_code == 0, result.stderr
    return orjson.loads(result.stdout)


def test_the_first_line_of_help_is_the_one_of_the_overview():
    assert SUMMARIES["plan"] == plan.help.splitlines()[0]


def test_a_plan_is_shown_as_text(trace_path):
    result = run(trace_path)
    assert (result.exit_code, result.stderr) == (0, "")
    assert "3, 3 sessions, 12 calls" in result.stdout


def test_the_example_of_the_help_works(trace_path):
    example = next(line for line in plan.help.splitlines() if "aitrace plan" in line).split()
    assert run(trace_path, *example[3:]).exit_code == 0


def test_a_cut_trace_is_planned_with_a_warning(tmp_path, trace_path):
    """Without its footer; of 12 calls in plain lines, the last one is lost as well."""
    trace = make_trace(3, 4)
    lines = [trace.header, *trace.sessions, *trace.segments, *trace.calls]
    path = tmp_path / "cut.aitrace"
    path.write_bytes(b"".join(map(encode_line, lines))[:-20])
    result = run(str(path))
    assert (result.exit_code, "11 calls" in result.stdout) == (0, True)
    assert result.stderr == (
        f"Warning: {path}: the trace is cut, or its recording did not end: 11 calls could be read, any that followed "
        "are not played\n"
    )
    assert run(trace_path).stderr == ""
    piped = CliRunner().invoke(main, ["plan", "-"], input=path.read_bytes())
    assert piped.stderr.startswith("Warning: stdin: the trace is cut")


def test_a_plan_of_mooncake_claims_no_more_than_the_file_tells(tmp_path):
    source = ROOT / "tests" / "data" / "mooncake" / "conversation_600.jsonl.zst"
    path = tmp_path / "m.aitrace"
    assert CliRunner().invoke(main, ["convert", str(source), "-o", str(path)]).exit_code == 0
    calls = read_trace(path).calls
    got = shown(str(path))
    assert (got["duration_ns"], got["peak_calls"], got["working_set"]["peak_tokens"]) == (None, None, None)
    assert got["sending_ns"] == max(c.times.request_ns for c in calls) - min(
        c.times.request_ns for c in calls
    )
    assert got["largest_prompt"]["tokens"] == max(call.usage.input_tokens for call in calls)
    assert not any("median" in note for note in got["notes"])


@pytest.mark.parametrize("trees", ["4000001", "1000000000000"])
def test_a_plan_that_is_too_large_is_refused_before_it_is_built(trace_path, trees):
    result = run(trace_path, "--trees", trees)
    assert (result.exit_code, result.stdout) == (2, "")
    assert "Hint: --trees 4000000 is the most that fits." in result.stderr


def test_json_holds_the_trace_the_options_and_every_field(trace_path):
    got = shown(trace_path)
    assert {"trace", "options", *PlanSummary.__dataclass_fields__} == set(got)
    assert set(LoadOptions.__dataclass_fields__) == set(got["options"])
    assert (got["trace"], got["calls"]) == ("small.aitrace", 12)


def test_every_option_reaches_the_plan(trace_path):
    got = shown(
        trace_path,
        *("--arrival", "fixed:2/s", "--trees", "5", "--time-scale", "0.5", "--gap-cap", "tool=100ms"),
        *(
            "--seed",
            "7",
            "--share-system",
            "--history",
            "live",
            "--tool-messages",
            "user",
            "--stream",
            "recorded",
            "--retries",
            "codex",
            "--identity",
            "dynamo",
            "--header",
            "X-T: {root}",
            "--identity-faults",
            "churn=2%",
        ),
    )
    assert got["options"] == {
        "arrival": "fixed:2/s",
        "concurrency": None,
        "trees": 5,
        "time_scale": 0.5,
        "gap_caps_ns": {"tool": 100_000_000},
        "seed": 7,
        "share_system": True,
        "history": "live",
        "tool_messages": "user",
        "stream": "recorded",
        "retries": "codex",
        "identity": "dynamo",
        "headers": ["X-T: {root}"],
        "duration_ns": None,
        "warm_up": None,
        "start_at": None,
        "prime": False,
        "select": [],
        "context_tokens": None,
        "over_context": None,
        "schedule": "causal",
        "hints": [],
        "identity_faults": {"churn": 0.02},
    }
    assert (got["trees"], got["capped_calls"]) == (5, 15)


def test_lanes_are_planned(trace_path):
    got = shown(trace_path, "--concurrency", "2")
    assert (got["open_loop"], got["lanes"], got["peak_trees"]) == (False, 2, 2)


@pytest.mark.parametrize(
    "options",
    [
        ["--arrival", "poisson:1"],
        ["--gap-cap", "user=long"],
        ["--time-scale", "-1"],
        ["--concurrency", "2", "--arrival", "together"],
        ["--history", "mine"],
    ],
)
def test_wrong_use_exits_with_2_and_prints_no_data(trace_path, options):
    result = run(trace_path, *options)
    assert (result.exit_code, result.stdout) == (2, "")
    assert "Error:" in result.stderr


def test_recorded_starts_of_trees_with_their_own_clocks_are_wrong_use(tmp_path):
    path = tmp_path / "trees.aitrace"
    write_trace(path, make_trace(2, 2, clock_scope="tree"))
    result = run(str(path), "--arrival", "recorded")
    assert result.exit_code == 2
    assert "Hint: Use --arrival poisson" in result.stderr


def test_a_file_that_is_no_trace_exits_with_3(tmp_path):
    path = tmp_path / "other.txt"
    path.write_text("hello")
    assert run(str(path)).exit_code == 3


def test_every_option_of_the_shape_reaches_the_plan(trace_path):
    got = shown(
        trace_path,
        *(
            "--arrival",
            "gamma:2/s:2",
            "--duration",
            "20s",
            "--warm-up",
            "2 trees",
            "--start-at",
            "0.25..0.75",
        ),
        *("--prime", "--select", "calls>=2", "--select", "depth<1", "--context", "9000"),
        *("--over-context", "compact"),
    )
    assert {name: got["options"][name] for name in SHAPE} == {
        "arrival": "gamma:2/s:2",
        "duration_ns": 20_000_000_000,
        "warm_up": "2 trees",
        "start_at": "0.25..0.75",
        "prime": True,
        "select": ["calls>=2", "depth<1"],
        "context_tokens": 9000,
        "over_context": "compact",
        "schedule": "causal",
    }
    assert got["cut_ns"] == 20_000_000_000
    assert got["unmeasured_calls"].keys() == {"prime", "warm_up"}


SHAPE = (
    *("arrival", "duration_ns", "warm_up", "start_at", "prime", "select", "context_tokens", "over_context"),
    "schedule",
)


def test_an_absolute_schedule_is_named(trace_path):
    assert shown(trace_path, "--schedule", "absolute")["options"]["schedule"] == "absolute"


@pytest.mark.parametrize(
    "options",
    [
        ["--duration", "soon"],
        ["--duration", "0"],
        ["--warm-up", "20 calls"],
        ["--start-at", "0.5"],
        ["--prime"],
        ["--select", "turns>3"],
        ["--schedule", "absolute", "--history", "live"],
        ["--arrival", "ramp:1/s"],
    ],
)
def test_a_shape_that_makes_no_sense_is_wrong_use(trace_path, options):
    result = run(trace_path, *options)
    assert (result.exit_code, result.stdout) == (2, "")


def test_the_line_of_a_replay_can_be_planned_and_nothing_of_its_target_is_used(tmp_path, trace_path):
    line = [
        "--url",
        "http://127.0.0.1:1",
        "--protocol",
        "chat",
        "-o",
        str(tmp_path / "run"),
        "--text-seed",
        "7",
    ]
    line += [
        "--api-key-file",
        str(tmp_path / "none"),
        "--metrics",
        "http://127.0.0.1:1/metrics",
        "--workers",
        "2",
    ]
    line += ["--ab", "identity=native,none", "--repeat", "2", "--no-live", "--time-scale", "0.5"]
    assert shown(trace_path, *line) == shown(trace_path, "--time-scale", "0.5")
    assert not (tmp_path / "run").exists()


def test_every_option_of_a_replay_is_one_of_a_plan():
    assert {param.name for param in replay.params} <= {param.name for param in plan.params}


def test_an_option_that_nobody_knows_is_refused_all_the_same(trace_path):
    assert run(trace_path, "--urll", "http://127.0.0.1:1").exit_code == 2


def test_the_duration_says_what_it_rests_on(trace_path):
    assert re.search(
        r"^Duration .* if answers take as long as recorded$", run(trace_path).stdout, re.MULTILINE
    )
