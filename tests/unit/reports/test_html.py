import base64
import gzip
import hashlib
import re

import orjson
import pytest
from plotly.offline import get_plotlyjs

from aitrace.testing import TraceBuilder, make_call_result, make_run_header
from reports.html import html_from_report, script_safe_json
from reports.summary import report_from_facts
from reports.tables import facts_from_run

EVIL = "</script><script>alert(1)</script><img src=x onerror=alert(2)>'\"&\u2028"


@pytest.fixture
def page_of(facts_of):
    return lambda calls, **options: html_from_report(report_from_facts(facts_of(calls, **options)))


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
    return html_from_report(report_from_facts(facts_from_run(header, None, calls, [], builder.trace())))


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
