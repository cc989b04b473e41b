from xml.etree import ElementTree as ET

from reports.comparison.comparison import Wish, compare
from reports.comparison.conditions import conditions_from_texts
from reports.comparison.junit import junit_from_comparison
from reports.comparison.testing import two_made_up_ways


def suite_of(**wish):
    text = junit_from_comparison(compare(two_made_up_ways(), Wish(**wish)))
    return ET.fromstring(text.split("\n", 1)[1]).find("testsuite")  # noqa: S314 - our own


def test_a_test_case_per_condition_that_fails_errs_or_passes():
    texts = ["ttft_paired > +5%", "call_paired > +5%", "gap_p99 < -1%", "tree_p95 > +1%"]
    suite = suite_of(conditions=conditions_from_texts(texts))
    cases = {case.get("name"): [child.tag for child in case] for case in suite.iter("testcase")}
    assert cases == {
        texts[0]: ["failure"],
        texts[1]: ["system-out"],
        texts[2]: cases[texts[2]],
        texts[3]: ["error"],
    }
    assert suite.get("tests") == "4"
    assert suite.get("failures") == "1"
    assert int(suite.get("errors")) == sum("error" in tags for tags in cases.values())
    assert "slower" not in suite.find("testcase").find("failure").get("message")
    assert "one run of each way" in suite.find("system-out").text


def test_without_conditions_a_test_case_per_measure_and_no_failure():
    suite = suite_of(names=("ttft_paired", "tree_p95"))
    assert [(case.get("name"), [child.tag for child in case]) for case in suite.iter("testcase")] == [
        ("ttft_paired", ["system-out"]),
        ("tree_p95", ["skipped"]),
    ]
    assert (suite.get("failures"), suite.get("errors"), suite.get("skipped")) == ("0", "0", "1")


def test_what_is_no_xml_does_not_break_the_file():
    first, second = two_made_up_ways(model="<&\x00\ud83d\ude00")
    hostile = type(second)(name="a<b>&\x1b", label="a<b>&\x1b", runs=second.runs)
    text = junit_from_comparison(compare([first, hostile], Wish(names=("ttft_p50",))))
    case = ET.fromstring(text.split("\n", 1)[1]).find("testsuite/testcase")  # noqa: S314 - our own
    assert case.get("classname") == "aitrace compare.a<b>& "
