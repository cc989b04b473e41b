import orjson
import pytest
from click.testing import CliRunner

from aitrace.cli import SUMMARIES, main
from aitrace.store import write_trace
from aitrace.testing import make_trace
from replayer.commands.plan import plan
from replayer.options import LoadOptions
from replayer.plan_summary import PlanSummary


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
