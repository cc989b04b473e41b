import io
from dataclasses import replace

from rich.console import Console

from aitrace.testing import make_call_result
from aitrace.units import NS_PER_MS, NS_PER_S
from replayer.progress import ProgressView, panel, plain_line
from replayer.run_parts import Snapshot
from replayer.scheduler import Progress
from replayer.tally import Tally

NOTHING = Progress(
    sessions_idle=4,
    sessions_active=0,
    sessions_waiting=0,
    sessions_done=0,
    sessions_lost=0,
    trees_active=0,
    trees_done=0,
    calls_sent=0,
    calls_in_flight=0,
    calls_unsent=0,
    calls_remaining=20,
)
START = Snapshot(
    elapsed_ns=0,
    progress=NOTHING,
    in_backoff=0,
    earlier_tries={},
    tally=Tally(),
    planned_calls=20,
    planned_sessions=4,
    planned_trees=3,
    left_ns=None,
    is_stopping=False,
)


def middle() -> Snapshot:
    """Half way: two complete calls, two refused, one cut."""
    tally = Tally()
    for index in range(2):
        sent_ns = index * NS_PER_S + 2 * NS_PER_MS
        tally.add(
            make_call_result(index=index, at_ns=index * NS_PER_S, sent_ns=sent_ns, new_connection=False)
        )
    for index, error in enumerate(["refused", "refused", "cut"], 2):
        tally.add(make_call_result(index=index, session=index, error=error, sent_ns=None))
    progress = replace(
        NOTHING,
        trees_active=2,
        trees_done=1,
        sessions_idle=1,
        sessions_active=3,
        sessions_waiting=2,
        sessions_done=5,
        sessions_lost=6,
        calls_sent=9,
        calls_in_flight=4,
        calls_unsent=7,
        calls_remaining=8,
    )
    return replace(
        START,
        elapsed_ns=65 * NS_PER_S,
        left_ns=25 * NS_PER_S,
        progress=progress,
        in_backoff=1,
        earlier_tries={"refused": 5, "connect": 1},
        tally=tally,
    )


def shown(snapshot: Snapshot) -> dict[str, str]:
    """The rows of the panel as a person sees them, by name."""
    console = Console(record=True, width=120, file=io.StringIO())
    console.print(panel(snapshot, "all.aitrace → http://host → run"))
    rows = {}
    for line in console.export_text().splitlines():
        name, _, value = line.strip().partition("  ")
        rows[name] = value.strip()
    return rows


def test_at_the_start_nothing_is_known_and_nothing_is_made_up():
    rows = shown(START)
    assert rows["replay"] == "all.aitrace → http://host → run"
    assert rows["time"] == "0 s elapsed"
    assert rows["TTFT"] == rows["lateness"] == "none yet"
    assert rows["failed"] == rows["retries"] == "none"


def test_half_way_every_count_has_its_place():
    rows = shown(middle())
    assert rows["time"] == "1 min 05 s elapsed, about 25 s left"
    assert rows["sessions"] == "3 active  2 waiting  1 to come  5 done  6 lost  of 4"
    assert rows["trees"] == "2 active  1 done  of 3"
    assert rows["calls"] == "3 in flight  1 in backoff  9 sent  8 to come  7 never sent  of 20"
    assert rows["TTFT"] == "p50 248 ms, p95 (n < 40)"
    assert rows["lateness"] == "p50 2 ms, p99 (n < 200)"
    assert rows["failed"] == "1 stream cut, 2 refused"
    assert rows["retries"] == "1 no connection, 5 refused"


def test_on_a_narrow_terminal_every_row_keeps_its_name_and_lines_are_broken():
    console = Console(record=True, width=40, file=io.StringIO())
    console.print(panel(middle(), "all.aitrace → http://host → run"))
    lines = console.export_text().splitlines()
    assert {"replay", "time", "sessions", "calls", "TTFT", "lateness", "failed"} <= {
        line[:8].strip() for line in lines
    }
    assert "7 never sent" in " ".join(" ".join(lines).split())


def test_a_stop_is_seen():
    assert "stopping" in shown(replace(middle(), is_stopping=True))


def test_sessions_that_a_stop_has_cut_are_not_called_lost():
    stopped = replace(middle(), is_stopping=True)
    assert "6 lost or cut" in shown(stopped)["sessions"]
    assert "6 lost or cut; " in plain_line(stopped)


def test_the_plain_line_tells_the_same():
    assert plain_line(middle()) == (
        "1 min 05 s elapsed, about 25 s left; 9 of 20 calls sent, 3 in flight, 1 in backoff; 5 of 4 sessions done, "
        "6 lost; TTFT p50 248 ms, p95 (n < 40); lateness p50 2 ms, p99 (n < 200); retries: 1 no connection, 5 refused; "
        "failed: 1 stream cut, 2 refused"
    )


def test_the_plain_line_names_no_failures_where_there_are_none():
    assert "failed" not in plain_line(START)
    assert "retries" not in plain_line(START)


def test_hours_are_written_as_hours():
    assert shown(replace(START, elapsed_ns=3723 * NS_PER_S))["time"].startswith("1 h 02 min elapsed")


def test_percentiles_are_of_the_latest_calls():
    tally = Tally()
    tally.service_ttft_ns.extend([NS_PER_S] * 5000)
    tally.service_ttft_ns.extend([NS_PER_MS] * 2000)
    assert shown(replace(START, tally=tally))["TTFT"] == "p50 1 ms, p95 1 ms"


def test_without_a_terminal_a_line_comes_every_ten_seconds():
    out = io.StringIO()
    with ProgressView(Console(file=out, width=40), "title", is_live=False) as view:
        for second in range(25):
            view.update(replace(START, elapsed_ns=second * NS_PER_S))
    lines = out.getvalue().splitlines()
    assert [line.split(" elapsed")[0] for line in lines] == ["10 s", "20 s"]


def test_on_a_terminal_the_panel_is_drawn_and_taken_away():
    out = io.StringIO()
    console = Console(file=out, width=100, force_terminal=True, legacy_windows=False)
    with ProgressView(console, "title", is_live=True) as view:
        view.update(middle())
    assert "in flight" in out.getvalue()
    assert out.getvalue().endswith("\x1b[2K")
