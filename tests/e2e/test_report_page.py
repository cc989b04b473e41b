"""The pages in a browser without a network: of a run, of a trace, and of a comparison."""

import csv
import io
import shutil
from dataclasses import fields, is_dataclass, replace
from itertools import pairwise
from pathlib import Path
from types import UnionType
from typing import get_args, get_origin, get_type_hints

import pytest
from click.testing import CliRunner

from aitrace.cli import main
from aitrace.runstore import RunWriter
from aitrace.schema import Trace
from aitrace.signals import SIGNAL_HEADERS, WORKER_SIGNALS, Signals
from aitrace.store import write_trace
from reports.browser import CHROMIUM, open_browser
from reports.testing import make_up_run

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed to open the page with")

EVIL = "=1+1</script><script>window.__evil=1</script><img src=x onerror='window.__evil=1'><b>\"&amp;\u2028"
KINDS = ("run", "trace", "comparison")
FIRST_COLUMN_ROWS = "[...document.querySelectorAll('#%s-data tbody tr')].map((row) => [...row.cells].map((cell) => cell.textContent))"


def poisoned(value, hint=None):
    """The same with every text in it replaced that is not one of a fixed set; dicts have one more."""
    if is_dataclass(value):
        hints = get_type_hints(type(value))
        return replace(
            value, **{one.name: poisoned(getattr(value, one.name), hints[one.name]) for one in fields(value)}
        )
    if isinstance(value, tuple) and value and is_dataclass(value[0]):
        return tuple(poisoned(one) for one in value)
    if hint == tuple[str, ...]:
        return (EVIL,)
    if get_origin(hint) is dict:
        of_values = get_args(hint)[1]
        more = 1 if of_values in (int, float) else EVIL
        known = dict.fromkeys((*SIGNAL_HEADERS, *WORKER_SIGNALS), EVIL) if hint == Signals else {}
        return (
            {key: EVIL if isinstance(one, str) else one for key, one in value.items()} | known | {EVIL: more}
        )
    return EVIL if hint is str or (isinstance(hint, UnionType) and str in get_args(hint)) else value


def write_run(directory: Path, run, trace: Trace) -> Path:
    path = directory.parent / "made-up.aitrace"
    write_trace(path, trace)
    with RunWriter(directory, run.header, path) as writer:
        for call in run.calls:
            writer.write_call(call)
        for scrape in run.scrapes:
            writer.write_scrape(scrape)
        writer.finish(run.end)
    return directory


def write_pages(directory: Path, change=lambda value: value, name="a") -> dict[str, Path]:
    """A page of each kind, made by the commands that make them; the runs are in directories of that name and another."""
    made = make_up_run(trees=8, calls=14, refused_ratio=0.02)
    trace = change(made.trace)
    run = replace(
        made,
        header=change(made.header),
        end=change(made.end),
        calls=tuple(change(call) for call in made.calls),
        # A reading that failed has an error in place of values.
        scrapes=tuple(change(one) if place % 3 == 0 else one for place, one in enumerate(made.scrapes)),
    )
    first = write_run(directory / name, run, trace)
    second = Path(shutil.copytree(first, directory / "b"))
    commands = {
        "run": ["report", first],
        "trace": ["report", first / "trace.aitrace"],
        "comparison": ["compare", first, second],
    }
    pages = {kind: directory / f"{kind}.html" for kind in KINDS}
    for kind, command in commands.items():
        result = CliRunner().invoke(main, [str(arg) for arg in (*command, "-o", pages[kind])])
        assert pages[kind].exists(), result.output
    return pages


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    return write_pages(tmp_path_factory.mktemp("pages"))


@pytest.fixture(scope="module")
def evil_pages(tmp_path_factory):
    return write_pages(tmp_path_factory.mktemp("evil"), poisoned, "<img src=x onerror='window.__evil=1'>")


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    with open_browser(tmp_path_factory.mktemp("profile")) as browser:
        yield browser


def show(page, figure):
    """Scroll to a figure until it is drawn; the middle of its drawing in the window."""
    return page.value(
        f"""(async () => {{
          const place = document.getElementById("{figure}");
          place.scrollIntoView({{ block: "center" }});
          while (place.dataset.state !== "drawn") await new Promise((resolve) => setTimeout(resolve, 10));
          await settled();
          const box = place.querySelector(".nsewdrag").getBoundingClientRect();
          return [box.left + box.width / 2, Math.max(60, box.top) + 40];
        }})()"""
    )


def range_of(page, figure):
    """What a figure shows along x, once it has settled."""
    return page.value(
        f"settled().then(() => document.getElementById('{figure}')._fullLayout.xaxis.range.map(Number))"
    )


def open_run(browser, path, **options):
    page = browser.open(path, **options)
    page.value(
        """window.settled = async () => {
          for (let turn = 0; turn < 4; turn += 1) await new Promise((resolve) => requestAnimationFrame(resolve));
          await new Promise((resolve) => setTimeout(resolve, 400));
        }; 1"""
    )
    return page


def click(page, figure, label):
    page.value(
        f"document.getElementById('{figure}').closest('figure').querySelector('[aria-label^=\"{label}\"]').click()"
    )


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("width", "dark"), [(1440, False), (820, True), (360, False), (320, True)])
def test_pages_are_whole_at_any_width_in_both_schemes(browser, pages, kind, width, dark):
    page = open_run(browser, pages[kind], width=width, dark=dark, touch=width < 400)
    page.draw_all()
    state = page.value("({...document.documentElement.dataset})")
    assert page.faults() == []
    assert (state["state"], state["errors"], state["drawn"]) == ("ready", "0", state["figures"])
    assert page.value("document.documentElement.scrollWidth") <= width
    assert page.value(
        "[...document.querySelectorAll('.plot')].every((one) => one.querySelector('.trace path, .point path, .points path'))"
    )


@pytest.mark.parametrize("kind", KINDS)
def test_headings_landmarks_and_names_are_there_for_readers_that_listen(browser, pages, kind):
    page = open_run(browser, pages[kind])
    levels = page.value("[...document.querySelectorAll('h1, h2, h3')].map((one) => Number(one.tagName[1]))")
    assert (levels[0], levels.count(1)) == (1, 1)
    assert all(after - before <= 1 for before, after in pairwise(levels))
    assert (
        page.value("['header', 'nav', 'main', 'footer'].map((tag) => document.querySelectorAll(tag).length)")
        == [1] * 4
    )
    targets = page.value("[...document.querySelectorAll('nav a')].map((one) => one.hash.slice(1))")
    sections = page.value("[...document.querySelectorAll('section')].map((one) => one.id)")
    assert targets == sections
    assert "verdict" in sections
    assert len(sections) > 3
    assert page.value(
        "[...document.querySelectorAll('.plot')].every((one) => one.getAttribute('aria-label').length > 5)"
    )
    assert page.value(
        "[...document.querySelectorAll('table')].every((one) => one.caption && one.caption.textContent)"
    )
    assert page.value("[...document.querySelectorAll('th')].every((one) => one.scope)")
    assert page.value(
        "new Set([...document.querySelectorAll('[id]')].map((one) => one.id)).size"
    ) == page.value("document.querySelectorAll('[id]').length")


def test_the_first_tab_stop_skips_the_contents(browser, pages):
    page = open_run(browser, pages["run"])
    page.press("Tab")
    assert page.value("document.activeElement.hash") == "#content"
    page.press("Enter")
    page.press("Tab")
    assert page.value("document.querySelector('main').contains(document.activeElement)")


def test_charts_are_drawn_when_they_come_near(browser, pages):
    page = open_run(browser, pages["run"])
    count = int(page.value("document.documentElement.dataset.figures"))
    assert int(page.value("document.documentElement.dataset.drawn")) < count


def width_of(shown):
    return shown[1] - shown[0]


@pytest.mark.parametrize("figure", ["timeline", "ttft-ecdf", "cache-gap"])
def test_buttons_zoom_pan_and_go_back(browser, pages, figure):
    page = open_run(browser, pages["run"])
    show(page, figure)
    whole = range_of(page, figure)
    click(page, figure, "Zoom in")
    narrow = range_of(page, figure)
    assert width_of(narrow) == pytest.approx(width_of(whole) * 0.6)
    click(page, figure, "Later")
    moved = range_of(page, figure)
    assert moved[0] > narrow[0]
    assert width_of(moved) == pytest.approx(width_of(narrow))
    click(page, figure, "Show everything")
    assert range_of(page, figure) == pytest.approx(whole)
    click(page, figure, "Zoom out")
    assert range_of(page, figure) == pytest.approx(whole)


def test_keys_and_the_wheel_zoom_a_chart_that_has_the_focus(browser, pages):
    page = open_run(browser, pages["run"])
    x, y = show(page, "timeline")
    whole = range_of(page, "timeline")
    page.mouse("mouseWheel", x, y, deltaX=0, deltaY=-60)
    assert range_of(page, "timeline") == whole
    x, y = show(page, "timeline")
    page.value("document.getElementById('timeline').focus({ preventScroll: true })")
    page.press("+")
    by_key = range_of(page, "timeline")
    assert width_of(by_key) == pytest.approx(width_of(whole) * 0.6)
    top = page.value("window.scrollY")
    page.mouse("mouseWheel", x, y, deltaX=0, deltaY=-120)
    by_wheel = range_of(page, "timeline")
    assert width_of(by_wheel) == pytest.approx(width_of(by_key) * 0.8)
    assert page.value("window.scrollY") == top
    page.press("ArrowLeft")
    assert range_of(page, "timeline")[0] < by_wheel[0]
    page.press("0")
    assert range_of(page, "timeline") == pytest.approx(whole)
    page.press("Escape")
    assert page.value("document.activeElement === document.body")


def test_a_drag_picks_a_range_and_charts_over_time_follow(browser, pages):
    page = open_run(browser, pages["run"])
    show(page, "load-time")
    x, y = show(page, "timeline")
    page.drag((x - 100, y), (x + 100, y + 5))
    picked = range_of(page, "timeline")
    assert picked[0] > 0
    show(page, "load-time")
    assert range_of(page, "load-time") == pytest.approx(picked)
    show(page, "ttft-time")
    assert range_of(page, "ttft-time") == pytest.approx(picked)
    show(page, "ttft-ecdf")
    assert page.value("document.getElementById('ttft-ecdf-range').textContent") == ""


def test_fingers_zoom_and_pan(browser, pages):
    page = open_run(browser, pages["run"], width=400, height=800, touch=True)
    x, y = show(page, "timeline")
    whole = range_of(page, "timeline")
    page.touch(*(((x - by, y), (x + by, y)) for by in (30, 45, 60, 75, 90)))
    near = range_of(page, "timeline")
    assert width_of(near) < 0.6 * width_of(whole)
    page.touch(*(((x - by, y),) for by in (0, 10, 20, 40)))
    moved = range_of(page, "timeline")
    assert moved[0] > near[0]
    assert width_of(moved) == pytest.approx(width_of(near))


def test_a_zoomed_chart_keeps_its_range_in_another_scheme(browser, pages):
    page = open_run(browser, pages["run"])
    show(page, "timeline")
    click(page, "timeline", "Zoom in")
    zoomed = range_of(page, "timeline")
    page.send("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "dark"}])
    assert range_of(page, "timeline") == pytest.approx(zoomed)


def test_dark_is_another_page_than_light(browser, pages):
    look = """(() => {
      const place = document.querySelector('.plot[data-state="drawn"]');
      return [getComputedStyle(document.body).backgroundColor, place._fullLayout.font.color, place._fullLayout.xaxis.gridcolor];
    })()"""
    looks = []
    for dark in (False, True):
        page = open_run(browser, pages["run"], dark=dark)
        page.draw_all()
        looks.append(page.value(look))
    assert all(light != dark for light, dark in zip(*looks, strict=True))


FIGURES = "JSON.parse(document.getElementById('figures').textContent)"


def shown_number(value):
    """A number as JavaScript writes it."""
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def rows_of(figures, name):
    """Rows of a chart of points or lines, by hand."""
    return [
        [trace["name"], shown_number(x), shown_number(y)]
        for trace in figures[name]["traces"]
        for x, y in zip(trace["x"], trace["y"], strict=True)
    ]


def csv_rows(path):
    """The rows of a CSV with the lines ends that RFC 4180 asks for."""
    text = path.read_bytes().decode()
    assert text.endswith("\r\n")
    return list(csv.reader(io.StringIO(text, newline=""), strict=True))


def downloaded(browser, page, directory, figure):
    browser.save_downloads_to(directory)
    click(page, figure, "CSV")
    browser.wait_for_download()
    (path,) = directory.iterdir()
    return path


def test_a_table_has_the_rows_of_its_chart_and_so_has_the_csv(browser, pages, tmp_path):
    page = open_run(browser, pages["run"])
    show(page, "ttft-ecdf")
    click(page, "ttft-ecdf", "Table of the data")
    rows = rows_of(page.value(FIGURES), "ttft-ecdf")
    assert len(rows) > 100
    heads = page.value("[...document.querySelectorAll('#ttft-ecdf-data th')].map((one) => one.textContent)")
    assert heads == ["series", "time to first token, ms", "share of calls"]
    assert page.value(FIRST_COLUMN_ROWS % "ttft-ecdf") == rows[:500]
    path = downloaded(browser, page, tmp_path, "ttft-ecdf")
    assert path.name == "aitrace-report-model-a-made-up.aitrace-ttft-ecdf.csv"
    assert csv_rows(path) == [heads, *rows]
    assert path.read_bytes().count(b"\r\n") == len(rows) + 1


def test_the_table_of_the_timeline_names_sessions_and_where_bars_begin(browser, pages, tmp_path):
    page = open_run(browser, pages["run"])
    show(page, "timeline")
    figure = page.value(FIGURES)["timeline"]
    names = figure["layout"]["yaxis"]["ticktext"]
    bars = [
        [trace["name"], names[row], shown_number(base), shown_number(length)]
        for trace in figure["traces"]
        if trace["type"] == "bar"
        for row, base, length in zip(trace["y"], trace["base"], trace["x"], strict=True)
    ]
    rows = csv_rows(downloaded(browser, page, tmp_path, "timeline"))
    assert rows[0] == ["series", "session", "from, s", "length, s", "what"]
    assert [row[:4] for row in rows[1:]] == bars


@pytest.mark.parametrize("kind", KINDS)
def test_every_chart_has_a_table_with_rows(browser, pages, kind):
    page = open_run(browser, pages[kind])
    page.value("document.querySelectorAll('.tools [aria-controls]').forEach((one) => one.click())")
    counts = page.value(
        "[...document.querySelectorAll('.data')].map((one) => one.querySelectorAll('tbody tr').length)"
    )
    assert len(counts) == int(page.value("document.documentElement.dataset.figures")) > 0
    assert all(counts)


@pytest.mark.parametrize("kind", KINDS)
def test_print_has_every_chart_on_sheets_that_fit(browser, pages, kind):
    page = open_run(browser, pages[kind], dark=True)
    page.value(
        """addEventListener("beforeprint", () => {
          const sheets = [...document.querySelectorAll(".sheet")];
          window.printed = {
            figures: new Set(sheets.map((one) => one.closest("figure"))).size,
            drawn: sheets.filter((one) => one.querySelector(".trace path, .point path, .points path")).length,
            sheets: sheets.length,
            highest: Math.max(...sheets.map((one) => one.getBoundingClientRect().height)),
            text: getComputedStyle(document.documentElement).getPropertyValue("--panel").trim(),
          };
        }); 1"""
    )
    pdf = page.printed()
    printed = page.value("window.printed")
    assert pdf.startswith(b"%PDF")
    assert printed["figures"] == int(page.value("document.documentElement.dataset.figures"))
    assert printed["drawn"] == printed["sheets"] >= printed["figures"]
    assert printed["highest"] <= 900
    assert printed["text"] == "#ffffff"
    assert page.value("document.querySelectorAll('.sheet').length") == 0
    assert page.faults() == []


@pytest.mark.parametrize("kind", KINDS)
def test_text_from_outside_is_text_in_the_page_its_charts_and_its_tables(browser, evil_pages, kind):
    page = open_run(browser, evil_pages[kind])
    page.draw_all()
    page.value("document.querySelectorAll('.tools [aria-controls]').forEach((one) => one.click())")
    assert page.faults() == []
    assert page.value("window.__evil === undefined")
    assert page.value("document.documentElement.dataset.errors") == "0"
    assert (
        page.value(
            "document.querySelectorAll('img, iframe, object, embed, form, b, svg a, svg image').length"
        )
        == 0
    )
    # The page's three, and the library.
    assert page.value("document.scripts.length") == 4
    assert page.value("document.querySelector('main').textContent.includes('window.__evil=1')")


def test_text_from_outside_is_no_formula_in_a_csv(browser, evil_pages, tmp_path):
    page = open_run(browser, evil_pages["run"])
    show(page, "timeline")
    rows = csv_rows(downloaded(browser, page, tmp_path, "timeline"))
    assert any(cell.startswith("'=1+1</script>") for row in rows for cell in row)
    assert any("window.__evil" in cell for row in rows for cell in row)
    assert not any(cell.startswith(tuple("=+@")) for row in rows for cell in row)
    assert len({len(row) for row in rows}) == 1
