"""I/O: `aitrace check`: what is wrong with a trace, and whether it holds text."""

import sys
from collections.abc import Iterator
from typing import Any

import click
import orjson

from aitrace.errors import EXIT_BAD_INPUT, EXIT_IN_DOUBT, EXIT_OK, InputError
from aitrace.leaks import LeakScan
from aitrace.no_text import find_text
from aitrace.schema import Header
from aitrace.store import DamagedTraceError, TraceReader
from aitrace.validate import Finding, TraceRules

_SHOWN = 100


@click.command()
@click.argument("trace", type=click.Path(allow_dash=True))
@click.option(
    "--no-text",
    is_flag=True,
    help="Also prove that no string in the file can be text of a prompt, and look for keys, addresses and ids.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of lines.")
def check(trace: str, *, no_text: bool, as_json: bool) -> None:
    """Validate a trace, or prove that it holds no text.

    Prints one line for each thing that is wrong and a verdict. Exit code 0: nothing is wrong; 1: the trace can be
    used, but its end is missing or something is odd; 3: it breaks a rule of the format, or may hold text.
    TRACE may be `-` for standard input.

    \b
    Example:
      aitrace check examples/claude-code.aitrace --no-text

    \b
    With --json: {"file", "verdict": "ok" | "warnings" | "errors", "lines", "bytes_lost", "clean_end",
    "no_text": true | false | null, "attribution", "findings": [{"severity", "line", "rule", "message"}, ...]}.
    `no_text` is null unless --no-text was given; it leaves out the attribution, which is null if there is none.
    """
    reader = TraceReader(trace)
    rules = TraceRules()
    findings = list(_findings(reader, rules, no_text=no_text))
    verdict = _verdict(findings)
    if as_json:
        click.echo(orjson.dumps(_report(reader, rules.header, findings, verdict, no_text=no_text)))
    else:
        _print_findings(reader, findings)
        _print_verdict(reader, findings, verdict)
        if no_text:
            _print_proof(reader, rules.header, findings)
    sys.exit({"ok": EXIT_OK, "warnings": EXIT_IN_DOUBT, "errors": EXIT_BAD_INPUT}[verdict])


def _findings(reader: TraceReader, rules: TraceRules, *, no_text: bool) -> Iterator[Finding]:
    damage: list[Finding] = []
    scan = LeakScan()
    for number, data in _raw_lines(reader, damage):
        if no_text:
            yield from find_text(number, data)
            yield from _leak_findings(scan, number, data)
        yield from _line_findings(reader, rules, number, data)
    yield from damage
    yield from _end_findings(reader, no_text=no_text)
    if not damage:
        yield from rules.finish()


def _raw_lines(reader: TraceReader, damage: list[Finding]) -> Iterator[tuple[int, bytes]]:
    """Lines up to the end or the first damaged frame, which is added to `damage`."""
    try:
        yield from reader.raw_lines()
    except DamagedTraceError as error:
        message = str(error).removeprefix(f"{reader.place(error.line)}: ")
        damage.append(Finding(severity="error", line=error.line, rule="damage", message=message))


def _leak_findings(scan: LeakScan, number: int, data: bytes) -> Iterator[Finding]:
    for leak in scan.leaks(number, data):
        yield Finding(severity="error", line=number, rule="leak", message=str(leak))


def _line_findings(reader: TraceReader, rules: TraceRules, number: int, data: bytes) -> list[Finding]:
    try:
        line = reader.decode(number, data)
    except InputError as error:
        if not reader.header_seen:
            raise
        message = str(error).removeprefix(f"{reader.place(number)}: ")
        return [Finding(severity="error", line=number, rule="line", message=message)]
    return rules.check(number, line)


def _end_findings(reader: TraceReader, *, no_text: bool) -> Iterator[Finding]:
    report = reader.report
    if report.cut:
        message = f"the end is cut: {report.bytes_lost} bytes after {report.lines} whole lines are lost"
        yield Finding(severity="warning", line=report.lines, rule="cut-tail", message=message)
    if report.cut and no_text:
        message = "the end is cut, so what stood there cannot be cleared"
        yield Finding(severity="error", line=report.lines, rule="text", message=message)


def _verdict(findings: list[Finding]) -> str:
    if any(finding.severity == "error" for finding in findings):
        return "errors"
    return "warnings" if findings else "ok"


def _report(
    reader: TraceReader, header: Header | None, findings: list[Finding], verdict: str, *, no_text: bool
) -> dict[str, Any]:
    return {
        "file": reader.name,
        "verdict": verdict,
        "lines": reader.report.lines,
        "bytes_lost": reader.report.bytes_lost,
        "clean_end": reader.report.clean_end,
        "no_text": _is_clear_of_text(findings) if no_text else None,
        "attribution": None if header is None else header.attribution,
        "findings": [
            {"severity": f.severity, "line": f.line, "rule": f.rule, "message": f.message} for f in findings
        ],
    }


def _print_findings(reader: TraceReader, findings: list[Finding]) -> None:
    for finding in findings[:_SHOWN]:
        click.echo(f"{reader.place(finding.line)}: {finding.severity}: {finding.rule}: {finding.message}")
    if len(findings) > _SHOWN:
        click.echo(f"... and {len(findings) - _SHOWN} more; --json lists all")


def _print_verdict(reader: TraceReader, findings: list[Finding], verdict: str) -> None:
    errors = sum(finding.severity == "error" for finding in findings)
    counts = f"{reader.report.lines} lines, {errors} errors, {len(findings) - errors} warnings"
    click.echo(f"{reader.name}: {verdict}: {counts}")


def _print_proof(reader: TraceReader, header: Header | None, findings: list[Finding]) -> None:
    attribution = None if header is None else header.attribution
    if not _is_clear_of_text(findings):
        click.echo(f"{reader.name}: may hold text")
    elif attribution is None:
        click.echo(f"{reader.name}: holds no text")
    else:
        click.echo(f"{reader.name}: holds no text but its attribution, as written by whoever converted it:")
        click.echo(f"  {attribution}")


def _is_clear_of_text(findings: list[Finding]) -> bool:
    """Whether every byte was looked at and none was refused; an unreadable line may hold anything."""
    return not any(finding.rule in ("text", "leak", "damage") for finding in findings)
