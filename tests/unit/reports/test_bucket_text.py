import pytest

from aitrace.columns import CALL_CLASSES, GAP_CAUSES
from reports.bucket_text import (
    CAUSE_WORDS,
    CLASS_WORDS,
    PART_WORDS,
    class_label,
    gap_before_label,
    range_label,
    turn_label,
)
from reports.measures.session_shares import PARTS


@pytest.mark.parametrize(
    ("first", "last", "text"), [(3, 3, "3"), (1000, 2999, "1,000 – 2,999"), (50, None, "50 and over")]
)
def test_a_bucket_is_named_by_its_first_and_last_value(first, last, text):
    assert range_label({"turn_from": first, "turn_to": last}, "turn") == text


def test_the_first_call_of_a_session_is_call_0():
    assert turn_label({"turn_from": 0, "turn_to": 0}) == "call 0"
    assert turn_label({"turn_from": 50, "turn_to": None}) == "call 50 and over"


def test_every_class_cause_and_part_has_words():
    assert set(CLASS_WORDS) == set(CALL_CLASSES)
    assert set(CAUSE_WORDS) == set(GAP_CAUSES)
    assert tuple(PART_WORDS) == PARTS


def test_a_class_is_told_in_words():
    assert class_label({"call_class": "subagent"}) == "sub-agent"


def test_first_calls_have_no_gap_to_be_named_by():
    assert (
        gap_before_label({"kind": "tree_start", "gap_from_s": None, "gap_to_s": None})
        == "first call of a tree"
    )
    assert gap_before_label({"kind": "continuing", "gap_from_s": 1.0, "gap_to_s": 10.0}) == "1 s – 10 s"
