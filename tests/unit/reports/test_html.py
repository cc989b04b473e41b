import base64
import gzip
import hashlib
import re
from dataclasses import replace
from importlib.resources import files
from itertools import combinations
from math import dist

import orjson
import pytest
from plotly.offline import get_plotlyjs

from aitrace.testing import TraceBuilder, make_call_result, make_run_header
from reports.html import html_from_document, script_safe_json
from reports.run_document import document_of_run
from reports.summary import report_from_facts
from reports.tables import facts_from_run

EVIL = "</script><script>alert(1)</script><img src=x onerror=alert(2)>'\"&\u2028"


@pytest.fixture
def page_of(facts_of):
    return lambda calls, **options: html_from_document(
        document_of_run(report_from_facts(facts_of(calls, **options)))
    )


def evil_page():
    builder = TraceBuilder(attribution=EVIL, source=EVIL)
    main = builder.session(harness=EVIL, label=EVIL)
    builder.call(main)
    builder.call(builder.session(parent=main, agent=EVIL))
    calls = [
        make_call_result(0, request_id=EVIL, finish=EVIL),
        make_call_result(1, session=1, error="http_error", error_text=EVIL, request_id=EVIL),
    ]
    named = dict.fromkeys(("url", "model", "trace", "producer"), EVIL)
    header = make_run_header(options={"arrival": EVIL}, **named)
    return html_from_document(
        document_of_run(report_from_facts(facts_from_run(header, None, calls, [], builder.trace())))
    )


def test_text_from_outside_never_becomes_markup():
    page = evil_page()
    assert "<script>alert" not in page
    assert "<img" not in page
    assert "&lt;script&gt;alert(1)" in page
    assert len(re.findall("<script", page)) == len(re.findall("</script>", page)) == 3


def test_data_in_the_page_is_json_again():
    page = evil_page()
    (data,) = re.findall(r'<script type="application/json" id="figures">(.*?)</script>', page, re.DOTALL)
    figures = orjson.loads(data)
    assert figures["timeline"]["layout"]["yaxis"]["ticktext"][1].startswith("&lt;/script&gt;")


def test_json_in_a_script_cannot_end_it():
    text = script_safe_json({"a": "</script><!--&\u2028\u2029"})
    assert not set("<>&\u2028\u2029") & set(text)
    assert orjson.loads(text) == {"a": "</script><!--&\u2028\u2029"}


def test_the_charts_library_travels_in_the_page(page_of):
    page = page_of([make_call_result()])
    (packed,) = re.findall(r'id="plotly">(.*?)</script>', page, re.DOTALL)
    assert gzip.decompress(base64.b64decode(packed)).decode() == get_plotlyjs()
    assert len(page) < 3_000_000


def test_the_policy_allows_the_two_scripts_of_the_page_and_nothing_else(page_of):
    page = page_of([make_call_result()])
    (policy,) = re.findall(r'http-equiv="Content-Security-Policy" content="(.*?)"', page)
    (script,) = re.findall(r"<script>(.*?)</script>", page, re.DOTALL)
    script_hash, plotly_hash = (
        "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        for text in (script, get_plotlyjs())
    )
    assert policy == (
        f"default-src 'none'; script-src '{script_hash}' '{plotly_hash}'; style-src 'unsafe-inline'; img-src data: blob:"
    )


def test_nothing_is_loaded_from_elsewhere(page_of):
    page = re.sub(r'id="plotly">.*?</script>', "", page_of([make_call_result()], url="x"), flags=re.DOTALL)
    assert re.findall(r"""(?:src=|href=|@import|url\()\s*["']?(?!data:)[\w/.:]+""", page) == []


def test_the_same_run_gives_the_same_page(page_of):
    assert page_of([make_call_result()]) == page_of([make_call_result()])


def test_a_doubt_without_a_remedy_names_none(page_of):
    doubts = re.findall(r"<dd>(Likely cause.*?)</dd>", page_of([make_call_result()], lines_lost=1))
    (lost,) = [doubt for doubt in doubts if "these lines" in doubt]
    assert lost.endswith("missing from every figure. ")
    assert any("What to do: play more trees" in doubt for doubt in doubts)


def test_the_section_on_the_cache_asks_whether_the_prefix_survives_the_gap(page_of):
    page = page_of([make_call_result()], time_scale=0.01)
    question = page.index("Does the prefix survive the gap?</h3>")
    assert page.index("3 s here stands for 5 min in the recording", question) < page.index('id="load"')


def test_a_caption_that_says_nothing_new_is_left_out(page_of):
    assert '<p class="note"></p>' not in page_of([make_call_result(0, error="cut")])


def test_a_run_without_complete_calls_says_so(page_of):
    page = page_of([make_call_result(0, error="connect", sent_ns=None, first_token_ns=None)])
    assert "no call was answered completely" in page
    assert "nothing to draw" in page


def test_a_table_has_a_caption_and_heads_for_its_columns_and_rows(page_of):
    page = page_of([make_call_result()])
    assert page.count("<table>") == page.count("<caption") > 3
    assert "<th>" not in page
    assert '<th scope="col"></th>' not in page


def test_a_chart_has_its_title_and_its_note_as_text(page_of):
    page = page_of([make_call_result()])
    assert re.search(
        r'id="ttft-ecdf"[^>]* role="img" tabindex="0" aria-label="TTFT, cumulative\. n = 1"', page
    )


def test_the_contents_name_every_section_once(page_of):
    page = page_of([make_call_result()])
    (nav,) = re.findall(r"<nav.*?</nav>", page, re.DOTALL)
    targets = re.findall(r'href="#([\w-]+)"', nav)
    assert targets == re.findall(r'<section id="([\w-]+)"', page)
    assert targets[0] == "verdict"


def test_a_document_says_how_to_read_its_numbers(facts_of):
    document = replace(
        document_of_run(report_from_facts(facts_of([make_call_result()]))), footer="medians & <means>"
    )
    assert "medians &amp; &lt;means&gt;</p>" in html_from_document(document)


def css_colours():
    """Custom properties of the page by scheme, as they are in effect there."""
    style = files("reports").joinpath("assets", "page.css").read_text()
    light, rest = style.split("@media (prefers-color-scheme: dark)", 1)
    dark, printed = rest.split("@media print", 1)
    schemes = [
        dict(re.findall(r"--([\w-]+): (#\w{6})", part)) for part in (light, dark, printed.split("html {")[0])
    ]
    return {"light": schemes[0], "dark": schemes[0] | schemes[1], "print": schemes[0] | schemes[2]}


def linear(colour):
    parts = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    return [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]


def contrast(one, other):
    """WCAG 2: 21 of black on white."""
    dark, light = sorted(
        sum(weight * part for weight, part in zip((0.2126, 0.7152, 0.0722), linear(colour), strict=True))
        for colour in (one, other)
    )
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("scheme", ["light", "dark", "print"])
@pytest.mark.parametrize("text", ["text", "muted", "accent", "fine", "doubt"])
def test_text_stands_out_from_what_it_is_written_on(scheme, text):
    colours = css_colours()[scheme]
    assert contrast("#000000", "#ffffff") == 21
    assert all(contrast(colours[text], colours[ground]) >= 4.5 for ground in ("bg", "panel"))


SIGHTS = {
    "full": ((1, 0, 0), (0, 1, 0), (0, 0, 1)),
    "protanopia": ((0.1523, 1.0526, -0.2049), (0.1145, 0.7863, 0.0992), (-0.0039, -0.0481, 1.0520)),
    "deuteranopia": ((0.3673, 0.8606, -0.2280), (0.2801, 0.6725, 0.0474), (-0.0118, 0.0429, 0.9689)),
    "tritanopia": ((1.2555, -0.0767, -0.1788), (-0.0784, 0.9308, 0.1476), (0.0047, 0.6914, 0.3039)),
}
"""What eyes make of linear red, green and blue: Machado, Oliveira and Fernandes 2009, severity 1."""
OKLAB = (
    ((0.4122214708, 0.5363325363, 0.0514459929), (0.2119034982, 0.6806995451, 0.1073969566), (0.0883024619, 0.2817188376, 0.6299787005)),
    ((0.2104542553, 0.7936177850, -0.0040720468), (1.9779984951, -2.4285922050, 0.4505937099), (0.0259040371, 0.7827717662, -0.8086757660)),
)  # fmt: skip
"""From linear red, green and blue to Oklab, with a cube root between the two."""


def times(matrix, vector):
    return [sum(a * b for a, b in zip(row, vector, strict=True)) for row in matrix]


def seen(colour, sight):
    rgb = [min(1, max(0, part)) for part in times(SIGHTS[sight], linear(colour))]
    return times(OKLAB[1], [part ** (1 / 3) for part in times(OKLAB[0], rgb)])


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("sight", SIGHTS)
@pytest.mark.parametrize(
    "together",
    [
        ("wait", "decode", "failed", "toolgap", "panel"),  # those of a timeline without a pattern
        ("usergap", "wait", "decode", "failed", "panel"),
        ("backoff", "wait", "decode", "failed", "panel"),
        ("wait", "user"),
        ("bound1", "bound2", "bound3", "panel"),
        ("reported", "bound3", "panel"),
    ],
)
def test_colours_used_together_are_apart_for_all_eyes(scheme, sight, together):
    colours = css_colours()[scheme]
    distances = {
        pair: dist(*(seen(colours[name], sight) for name in pair)) for pair in combinations(together, 2)
    }
    assert {pair: distance for pair, distance in distances.items() if distance < 0.08} == {}
