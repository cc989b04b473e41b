"""Pure: a comparison as JUnit XML, as continuous integration reads it: a test case per condition, or per measure.

A condition that is met is a failure, one that cannot be told an error. Without conditions a measure that cannot be told is
skipped, and nothing fails. What there is to doubt stands in `system-out`.
"""

from xml.etree import ElementTree as ET

from reports.comparison.comparison import Comparison, verdict
from reports.comparison.conditions import Checked
from reports.comparison.differences import Difference
from reports.comparison.wording import checked_text, finding_text
from reports.words import printable

_SUITE = "aitrace compare"


def junit_from_comparison(comparison: Comparison) -> str:
    """The whole file."""
    cases = [_case_of_condition(each) for each in comparison.checked] or [
        _case_of_measure(each, way.name)
        for way, of_way in zip(comparison.ways[1:], comparison.differences, strict=True)
        for each in of_way
    ]
    suite = ET.Element(
        "testsuite",
        name=_SUITE,
        tests=str(len(cases)),
        failures=_count(cases, "failure"),
        errors=_count(cases, "error"),
        skipped=_count(cases, "skipped"),
    )
    suite.extend(cases)
    said = [verdict(comparison), *(f"{doubt.what} ({doubt.cause})" for doubt in comparison.doubts)]
    ET.SubElement(suite, "system-out").text = "\n".join(printable(line) for line in said)
    root = ET.Element("testsuites")
    root.append(suite)
    ET.indent(root)
    return '<?xml version="1.0" encoding="utf-8"?>\n' + ET.tostring(root, encoding="unicode") + "\n"


def _case_of_condition(checked: Checked) -> ET.Element:
    case = _case(checked.condition.text, checked.other)
    text = printable(checked_text(checked))
    match checked.outcome:
        case "met":
            ET.SubElement(case, "failure", message=text)
        case "unclear":
            ET.SubElement(case, "error", message=text)
        case "kept":
            ET.SubElement(case, "system-out").text = text
    return case


def _case_of_measure(difference: Difference, other: str) -> ET.Element:
    case = _case(difference.measure.name, other)
    text = printable(finding_text(difference))
    if difference.finding == "too_few":
        ET.SubElement(case, "skipped", message=text)
    else:
        ET.SubElement(case, "system-out").text = text
    return case


def _case(name: str, other: str) -> ET.Element:
    return ET.Element("testcase", name=printable(name), classname=f"{_SUITE}.{printable(other)}")


def _count(cases: list[ET.Element], tag: str) -> str:
    return str(sum(case.find(tag) is not None for case in cases))
