"""I/O: a document as one HTML file that needs no network: reads the page's parts from this package and plotly's.

Plotly's JavaScript travels as gzip in base64 and is inflated in the page. A content security policy names the hashes
of the page's scripts and allows no connections, so nothing that slipped into the data could run or be sent.
"""

import base64
import gzip
import hashlib
from importlib.resources import files
from typing import Any

import jinja2
import orjson
from plotly.offline import get_plotlyjs

from reports.document import Document, Figure

SCRIPTS = ("tables.js", "zoom.js", "page.js")
"""The page's own script in its parts, in order."""


def html_from_document(document: Document) -> str:
    """The whole page."""
    figures = document.figures()
    script = '"use strict";\n' + "".join(_asset(name) for name in SCRIPTS)
    plotly = get_plotlyjs()
    template = _environment().get_template("page.html.j2")
    return template.render(
        document=document,
        figures=figures,
        style=_asset("page.css"),
        script=script,
        script_hash=_source_hash(script),
        plotly_hash=_source_hash(plotly),
        # mtime 0: the same run gives the same page, byte by byte.
        plotly_gzip=base64.b64encode(gzip.compress(plotly.encode(), 9, mtime=0)).decode(),
        data=script_safe_json({figure.id: _json_from_figure(figure) for figure in figures}),
    )


def script_safe_json(value: Any) -> str:
    """JSON that can stand in a script element: without `<`, `>`, `&` and the line ends that only JSON allows."""
    text = orjson.dumps(value, option=orjson.OPT_SERIALIZE_NUMPY).decode()
    for char in "<>&\u2028\u2029":
        text = text.replace(char, f"\\u{ord(char):04x}")
    return text


def _json_from_figure(figure: Figure) -> dict[str, Any]:
    return {"traces": figure.traces, "layout": figure.layout, "columns": figure.columns}


def _environment() -> jinja2.Environment:
    return jinja2.Environment(
        loader=jinja2.PackageLoader("reports", "assets"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def _asset(name: str) -> str:
    return files("reports").joinpath("assets", name).read_text(encoding="utf-8")


def _source_hash(script: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
