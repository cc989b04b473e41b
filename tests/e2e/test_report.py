"""`aitrace report` as a user runs it, and the page in a browser without a network."""

import re
from pathlib import Path

import orjson
import pytest
from click.testing import CliRunner

from aitrace.cli import main
from aitrace.runstore import RunWriter
from aitrace.store import write_trace
from reports.browser import CHROMIUM, open_browser
from reports.html import script_safe_json
from reports.testing import make_up_run

needs_chromium = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed to open the page with")


def write_run(directory: Path, run, *, finish=True, calls=None):
    trace_path = directory.parent / "made-up.aitrace"
    write_trace(trace_path, run.trace)
    with RunWriter(directory, run.header, trace_path) as writer:
        for call in run.calls if calls is None else calls:
            writer.write_call(call)
        for scrape in run.scrapes:
            writer.write_scrape(scrape)
        if finish:
            writer.finish(run.end)
    return directory


@pytest.fixture(scope="module")
def fine_run(tmp_path_factory):
    return write_run(tmp_path_factory.mktemp("fine") / "run", make_up_run(trees=8, calls=14))


@pytest.fixture(scope="module")
def page(fine_run):
    assert report(fine_run).exit_code == 0
    return fine_run / "report.html"


def report(*args):
    return CliRunner().invoke(main, ["report", *map(str, args)])


def test_a_fine_run_exits_with_0_and_writes_the_page_beside_it(fine_run):
    result = report(fine_run)
    assert (result.exit_code, result.stdout.splitlines()[0]) == (0, "fine")
    assert (fine_run / "report.html").read_text().startswith("<!doctype html>")
    assert (
        result.stderr.splitlines()[-1]
        == result.output.splitlines()[-1]
        == f"wrote {fine_run / 'report.html'}"
    )


def test_a_run_in_doubt_exits_with_1(tmp_path):
    run = write_run(tmp_path / "run", make_up_run(trees=3, calls=8, refused_ratio=0.2))
    result = report(run, "--no-html")
    assert result.exit_code == 1
    assert result.stdout.startswith("in doubt: ")
    assert not (run / "report.html").exists()


def test_json_is_all_that_goes_to_stdout(fine_run, tmp_path):
    result = report(fine_run, "--json", "-o", tmp_path / "page.html")
    value = orjson.loads(result.stdout)
    assert value["verdict"] == {"fine": True, "line": "fine", "doubts": []}
    assert value["numbers"]["complete_calls"] == value["numbers"]["planned_calls"]
    assert (tmp_path / "page.html").exists()


def test_a_run_without_a_complete_call_has_a_page_that_says_so(tmp_path):
    run = write_run(tmp_path / "run", make_up_run(trees=2, calls=3, refused_ratio=1.0))
    result = report(run)
    assert result.exit_code == 1
    assert "no call was answered completely" in (run / "report.html").read_text()


def test_a_run_that_never_began_has_a_page(tmp_path):
    run = write_run(tmp_path / "run", make_up_run(trees=2, calls=3), finish=False, calls=[])
    result = report(run)
    assert result.exit_code == 1
    assert "the run has no end record" in result.stdout


def test_a_run_without_its_trace_has_no_bound_and_says_so(tmp_path):
    run = write_run(tmp_path / "run", make_up_run(trees=8, calls=14))
    (run / "trace.aitrace").unlink()
    value = orjson.loads(report(run, "--json", "--no-html").stdout)
    assert value["numbers"]["cache_bound_tokens"] is None
    assert [doubt["name"] for doubt in value["verdict"]["doubts"]] == ["trace_missing"]


def test_a_run_with_a_damaged_trace_is_reported_without_it(tmp_path):
    run = write_run(tmp_path / "run", make_up_run(trees=8, calls=14))
    trace = run / "trace.aitrace"
    trace.write_bytes(trace.read_bytes()[:100])
    result = report(run, "--json", "--no-html")
    assert result.exit_code == 0
    assert f"Warning: reported without the trace: {trace}" in result.stderr
    assert orjson.loads(result.stdout)["numbers"]["cache_bound_tokens"] is None


@pytest.mark.parametrize(
    ("name", "content", "place"),
    [
        ("run.json", "{", "run.json: not JSON"),
        ("calls.jsonl", "{}\nnonsense\n", "calls.jsonl:1: "),
        ("scrapes.jsonl", '{"at_ns": "x"}\n', "scrapes.jsonl:1: at_ns: expected an integer, got 'x'"),
    ],
)
def test_a_damaged_file_is_bad_input_and_leaves_no_page(tmp_path, name, content, place):
    run = write_run(tmp_path / "run", make_up_run(trees=2, calls=3))
    (run / name).write_text(content)
    result = report(run)
    assert (result.exit_code, result.stdout) == (3, "")
    assert place in result.stderr
    assert not list(run.glob("report.html*"))


def test_a_trace_is_no_run_and_has_a_report_of_its_own(tmp_path):
    run = write_run(tmp_path / "run", make_up_run(trees=2, calls=3))
    value = orjson.loads(report(run / "trace.aitrace", "--json", "--no-html").stdout)
    assert (value["kind"], value["trace"]["name"]) == ("trace", "trace.aitrace")
    assert orjson.loads(report(run, "--json", "--no-html").stdout)["kind"] == "run"


def test_what_is_no_run_is_bad_input(tmp_path):
    result = report(tmp_path / "nowhere")
    assert result.exit_code == 3
    assert "nowhere: no such directory" in result.stderr


def test_a_page_that_cannot_be_written_is_told_and_leaves_nothing(fine_run, tmp_path):
    result = report(fine_run, "-o", tmp_path / "missing" / "page.html")
    assert result.exit_code == 2
    assert "page.html: cannot be written" in result.stderr
    assert list(tmp_path.iterdir()) == []


def test_no_page_and_a_page_exclude_each_other(fine_run):
    assert report(fine_run, "--no-html", "-o", "x.html").exit_code == 2


def faults(path: Path, profile: Path) -> list[str]:
    """What is wrong with the page in a browser; empty if every figure was drawn and the console is silent."""
    with open_browser(profile) as browser:
        page = browser.open(path)
        page.draw_all()
        found = page.faults()
        state = page.value("({...document.documentElement.dataset})")
        figures = page.value("[...document.querySelectorAll('.plot')].map((one) => [one.id, one.innerHTML])")
    if state["state"] != "ready" or state["errors"] != "0":
        found.append(f"state: {state}")
    if state["drawn"] != state["figures"]:
        found.append(f"figures: {state['drawn']} of {state['figures']} drawn")
    for name, body in figures:
        if not re.search(r'<g class="trace.*?<path[^>]* d="M[\d.]+', body, re.DOTALL):
            found.append(f"{name}: no trace was drawn")
    return found


@needs_chromium
def test_every_figure_is_drawn_without_a_network_or_a_console_error(page, tmp_path):
    assert faults(page, tmp_path) == []


@needs_chromium
@pytest.mark.parametrize(
    ("sound", "broken", "symptom"),
    [
        ('id="plotly">H4sI', 'id="plotly">AAAA', "state"),  # the library cannot be inflated
        (
            "Plotly.newPlot(place",
            "Plotly.draw(place",
            "console",
        ),  # no longer the script that the policy names
    ],
)
def test_a_broken_page_is_found_out(page, tmp_path, sound, broken, symptom):
    text = page.read_text()
    assert sound in text
    damaged = tmp_path / "broken.html"
    damaged.write_text(text.replace(sound, broken))
    assert any(fault.startswith(symptom) for fault in faults(damaged, tmp_path / "profile"))


@needs_chromium
@pytest.mark.parametrize("name", ["ttft-ecdf", "cache-rates", "timeline"])
def test_a_figure_that_draws_nothing_is_found_out(page, tmp_path, name):
    text = page.read_text()
    (data,) = re.findall(r'id="figures">(.*?)</script>', text, re.DOTALL)
    figures = orjson.loads(data)
    for trace in figures[name]["traces"]:
        trace.update(x=[], y=[], base=[])
    damaged = tmp_path / "broken.html"
    damaged.write_text(text.replace(data, script_safe_json(figures)))
    assert faults(damaged, tmp_path / "profile") == [f"{name}: no trace was drawn"]


@needs_chromium
def test_a_browser_that_cannot_inflate_says_so_and_shows_the_tables(page, tmp_path):
    """The page's own script is changed along with its hash, so that it finds no DecompressionStream."""
    import base64
    import hashlib

    def source_hash(script):
        return "sha256-" + base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()

    text = page.read_text()
    (script,) = re.findall(r"<script>(.*?)</script>", text, re.DOTALL)
    blind = script.replace('"DecompressionStream" in window', "false")
    old = tmp_path / "old.html"
    old.write_text(text.replace(script, blind).replace(source_hash(script), source_hash(blind)))
    with open_browser(tmp_path / "profile") as browser:
        page = browser.open(old)
        assert page.faults() == []
        assert page.value("document.documentElement.dataset.state") == "no-charts"
        assert page.value("document.getElementById('no-charts').innerText").startswith(
            "This browser cannot inflate"
        )
        assert page.value("[...document.querySelectorAll('.plot')].every((one) => one.offsetHeight === 0)")
        page.value("document.querySelectorAll('.tools [aria-controls]').forEach((one) => one.click())")
        assert page.value("[...document.querySelectorAll('.data')].every((one) => one.querySelector('td'))")
