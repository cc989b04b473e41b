"""`aitrace export` as a user runs it: what a replay against the built-in engine becomes."""

import csv
import io
import shutil
from collections import Counter

import orjson
import polars as pl
import pytest
from click.testing import CliRunner

from aitrace.cli import main
from aitrace.runstore import read_run
from aitrace.schema import CallClass
from aitrace.store import write_trace
from aitrace.testing import TraceBuilder
from replayer.engine.options import EngineOptions
from replayer.engine.testing import engine_on_thread

NAMES = ("csv", "parquet", "json", "perfetto", "llm-d", "otlp")
TREES = 3
KEY = "sk-ant-REDACTED"


def two_agents():
    """Trees whose main agent starts a sub-agent, waits for it and goes on."""
    builder = TraceBuilder(attribution="made up")
    for _ in range(TREES):
        main_session, waits = builder.session(harness="claude-code"), []
        for turn in range(4):
            call_class: CallClass = "main"
            waits = [
                builder.call(
                    main_session, [builder.segment(300)], after=waits, call_class=call_class, output_tokens=20
                )
            ]
            if turn == 1:
                child = builder.session(parent=main_session, harness="claude-code", agent="Explore")
                builder.call(child, [builder.segment(200)], call_class="subagent", output_tokens=10)
                waits.append(builder.call(child, [builder.segment(50)], cause="tool", output_tokens=10))
    return builder.trace()


@pytest.fixture(scope="module")
def run_path(tmp_path_factory):
    directory = tmp_path_factory.mktemp("export")
    write_trace(directory / "trace.aitrace", two_agents())
    with engine_on_thread(
        EngineOptions(port=0, prefill_tokens_per_s=20_000, decode_tokens_per_s=500)
    ) as target:
        words = ["replay", str(directory / "trace.aitrace"), "--url", target.url, "--protocol", "chat"]
        more = ["-o", str(directory / "run"), "--time-scale", "0.02", "--workers", "1", "--json"]
        done = CliRunner().invoke(main, [*words, *more], catch_exceptions=False)
    assert done.exit_code in (0, 1), done.output
    return directory / "run"


@pytest.fixture(scope="module")
def run(run_path):
    return read_run(run_path)


@pytest.fixture(scope="module")
def exported(run_path, tmp_path_factory):
    """The bytes of each format."""
    directory, made = tmp_path_factory.mktemp("exported"), {}
    for name in NAMES:
        result = export(run_path, "--format", name, "-o", directory / name)
        assert result.exit_code == 0, result.output
        assert result.stderr.splitlines()[-1] == f"wrote {directory / name}: {TREES * 6} calls as {name}"
        made[name] = (directory / name).read_bytes()
    return made


def export(*args):
    return CliRunner().invoke(main, ["export", *map(str, args)], catch_exceptions=False)


def spans_of(data):
    lines = [orjson.loads(line) for line in data.splitlines()]
    return [span for line in lines for span in line["resourceSpans"][0]["scopeSpans"][0]["spans"]]


def attribute(span, name):
    (value,) = [one["value"] for one in span["attributes"] if one["key"] == name]
    ((kind, inner),) = value.items()
    return int(inner) if kind == "intValue" else inner


def test_every_form_has_every_call_with_the_times_of_the_run(run, exported):
    wanted = sorted((call.index, call.due_ns, call.end_ns) for call in run.calls)
    rows = list(csv.DictReader(io.StringIO(exported["csv"].decode())))
    assert sorted((int(row["index"]), int(row["due_ns"]), int(row["end_ns"])) for row in rows) == wanted
    frame = pl.read_parquet(io.BytesIO(exported["parquet"]))
    assert sorted(frame.select("index", "due_ns", "end_ns").rows()) == wanted
    calls = orjson.loads(exported["json"])["calls"]
    assert sorted((call["index"], call["due_ns"], call["end_ns"]) for call in calls) == wanted
    events = [e for e in orjson.loads(exported["perfetto"])["traceEvents"] if e.get("cat") == "call"]
    drawn = sorted((e["args"]["index"], e["ts"], e["ts"] + e["dur"]) for e in events)
    assert drawn == [(index, due_ns // 1000, end_ns // 1000) for index, due_ns, end_ns in wanted]
    start = run.header.started_unix_ns
    spans = [span for span in spans_of(exported["otlp"]) if span["name"].startswith("chat ")]
    times = [(int(s["startTimeUnixNano"]) - start, int(s["endTimeUnixNano"]) - start) for s in spans]
    assert sorted((attribute(s, "aitrace.index"), *t) for s, t in zip(spans, times, strict=True)) == wanted


def test_the_table_of_an_export_is_that_of_the_run_and_the_outcome(run_path, exported):
    own, made = pl.read_parquet(run_path / "calls.parquet"), pl.read_parquet(io.BytesIO(exported["parquet"]))
    assert made.drop("outcome").equals(own.select(made.drop("outcome").columns))
    assert set(own.columns) == set(made.columns) - {"outcome"}


def test_statistics_are_those_of_the_runs_lines(run, exported):
    told = orjson.loads(exported["llm-d"])["results"]
    requests = told["request_performance"]["aggregate"]
    ttft_s = sorted((call.first_token_ns - call.sent_ns) / 1e9 for call in run.calls)
    assert requests["requests"]["total"] == len(run.calls)
    assert requests["latency"]["time_to_first_token"]["p50"] == pytest.approx(ttft_s[(len(ttft_s) - 1) // 2])
    assert told["session_performance"]["sessions"]["succeeded"] == TREES * 2


def test_sub_agents_stand_below_the_agent_that_started_them(run, exported):
    spans = spans_of(exported["otlp"])
    by_id = {span["spanId"]: span for span in spans}
    names = Counter(
        (s["name"].split()[-1], by_id.get(s.get("parentSpanId"), {}).get("name"))
        for s in spans
        if s["kind"] == 1
    )
    assert names == {("main", None): TREES, ("Explore", "invoke_agent main"): TREES}
    assert len({span["traceId"] for span in spans}) == TREES
    sessions = orjson.loads(exported["json"])["sessions"]
    assert Counter(one["agent"] for one in sessions) == {None: TREES, "Explore": TREES}


def test_arrows_are_the_dependencies_of_the_trace(run, exported):
    trace = two_agents()
    events = orjson.loads(exported["perfetto"])["traceEvents"]
    wanted = Counter(link.relation for call in trace.calls for link in call.after)
    assert wanted.keys() == {"sequence", "spawn", "join"}
    for kind in "sf":
        assert Counter(e["name"] for e in events if e["ph"] == kind) == wanted


def test_two_exports_are_equal(run_path, exported, tmp_path):
    for name in NAMES:
        assert export(run_path, "--format", name, "-o", tmp_path / name).exit_code == 0
        assert (tmp_path / name).read_bytes() == exported[name]


@pytest.mark.parametrize("name", NAMES)
def test_stdout_gets_the_same_bytes_if_they_are_text(run_path, exported, name):
    result = export(run_path, "--format", name, "-o", "-")
    if name == "parquet":
        assert (result.exit_code, result.stderr) == (
            2,
            "Error: parquet is no text for stdout\nHint: name a file with -o\n",
        )
    else:
        assert (result.exit_code, result.stdout_bytes) == (0, exported[name])


def test_a_file_is_replaced_only_by_force(run_path, exported, tmp_path):
    target = tmp_path / "out.csv"
    target.write_text("mine")
    result = export(run_path, "--format", "csv", "-o", target)
    assert (result.exit_code, target.read_text()) == (2, "mine")
    assert "--force" in result.stderr
    assert export(run_path, "--format", "csv", "-o", target, "--force").exit_code == 0
    assert target.read_bytes() == exported["csv"]


@pytest.mark.parametrize("target", ["missing/out.csv", "."])
def test_a_place_that_cannot_be_written_is_told(run_path, tmp_path, target):
    result = export(run_path, "--format", "csv", "-o", tmp_path / target, "--force")
    assert result.exit_code == 2
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", NAMES)
def test_a_run_that_was_killed_is_exported_as_far_as_it_went_and_says_so(run_path, tmp_path, name):
    cut = tmp_path / "run"
    shutil.copytree(run_path, cut)
    told = orjson.loads((cut / "run.json").read_bytes())
    del told["end"]
    (cut / "run.json").write_bytes(orjson.dumps(told))
    data = (cut / "calls.jsonl").read_bytes()
    (cut / "calls.jsonl").write_bytes(b"".join(data.splitlines(keepends=True)[:9]) + b'{"index":9,"ca')
    result = export(cut, "--format", name, "-o", tmp_path / "out")
    assert result.exit_code == 1
    assert "the run has no end record: it was cut, 9 of 18 planned calls left no result" in result.stderr
    assert "a line at the end of 1 of the run's files was cut" in result.stderr
    assert result.stderr.splitlines()[-1].endswith(f": 9 calls as {name}")
    assert (tmp_path / "out").stat().st_size > 0


def test_a_damaged_line_is_bad_input_and_leaves_no_file(run_path, tmp_path):
    damaged = tmp_path / "run"
    shutil.copytree(run_path, damaged)
    with (damaged / "calls.jsonl").open("ab") as stream:
        stream.write(b"{}\n")
    for name in NAMES:
        result = export(damaged, "--format", name, "-o", tmp_path / "out")
        assert result.exit_code == 3
        assert "calls.jsonl:19: " in result.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


def test_without_its_trace_a_run_is_exported_without_arrows(run_path, tmp_path):
    bare = tmp_path / "run"
    shutil.copytree(run_path, bare)
    (bare / "trace.aitrace").unlink()
    result = export(bare, "--format", "perfetto", "-o", tmp_path / "out")
    assert (result.exit_code, "Warning: exported without dependencies" in result.stderr) == (0, True)
    (bare / "trace.aitrace").write_bytes(b"no trace")
    result = export(bare, "--format", "otlp", "-o", tmp_path / "out", "--force")
    assert (result.exit_code, "Warning: exported without dependencies" in result.stderr) == (0, True)


@pytest.mark.parametrize("name", NAMES)
def test_no_key_leaves_a_run_and_texts_of_errors_only_on_request(run_path, tmp_path, name):
    leaky = tmp_path / "run"
    shutil.copytree(run_path, leaky)
    told = orjson.loads((leaky / "run.json").read_bytes())
    told["header"]["options"] |= {"headers": [f"X-Key: {KEY}"], "metrics": [f"http://x/?k={KEY}"]}
    (leaky / "run.json").write_bytes(orjson.dumps(told))
    lines = [orjson.loads(line) for line in (leaky / "calls.jsonl").read_bytes().splitlines()]
    lines[0] |= {"error": "http_error", "status": 401, "error_text": f'=you said\n"hello" with {KEY}'}
    lines[0]["signals"] = {"x-session-token": "secret-token"}
    (leaky / "calls.jsonl").write_bytes(b"".join(orjson.dumps(line) + b"\n" for line in lines))
    assert export(leaky, "--format", name, "-o", tmp_path / "out").exit_code == 0
    assert export(leaky, "--format", name, "-o", tmp_path / "texts", "--error-texts").exit_code == 0
    without, texts = (tmp_path / "out").read_bytes(), (tmp_path / "texts").read_bytes()
    for data in (without, texts):
        assert KEY.encode() not in data
        assert b"secret-token" not in data
    assert b"you said" not in without
    if name not in ("parquet", "llm-d"):
        assert b"[an API key]" in texts
