import pytest

from aitrace.errors import UsageError
from aitrace.testing import TraceBuilder
from replayer.planning.selection import select_calls
from replayer.planning.tree_filter import TreeTraits, meets, traits_of, tree_condition

CODEX = TreeTraits(harness="codex", calls=20, depth=1, tokens=150_000)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("harness=codex", True),
        ("harness!=codex", False),
        ("harness=claude-code", False),
        ("calls>=20", True),
        ("calls>20", False),
        ("calls<=20", True),
        ("calls!=20", False),
        ("calls = 20", True),
        ("depth>0", True),
        ("depth<1", False),
        ("tokens<200k", True),
        ("tokens<0.1M", False),
    ],
)
def test_a_condition_compares_one_trait(text, expected):
    assert meets(CODEX, [tree_condition(text)]) == expected


def test_all_conditions_must_hold():
    assert meets(CODEX, map(tree_condition, ["depth>0", "calls>1"]))
    assert not meets(CODEX, map(tree_condition, ["depth>0", "calls>100"]))
    assert meets(CODEX, [])


def test_a_harness_that_is_not_known_equals_none():
    unknown = TreeTraits(harness=None, calls=1, depth=0, tokens=1)
    assert not meets(unknown, [tree_condition("harness=codex")])
    assert meets(unknown, [tree_condition("harness!=codex")])


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("turns>3", "'turns' is none of"),
        ("tokens~200k", "expected FIELD"),
        ("calls>many", "'many' is not a number"),
        ("harness>codex", "orders names"),
        ("", "expected FIELD"),
        ("calls>=", "expected FIELD"),
    ],
)
def test_a_condition_that_cannot_be_read_is_refused_with_examples(text, said):
    with pytest.raises(UsageError, match=said) as caught:
        tree_condition(text)
    assert "calls>=20" in caught.value.hint


def test_traits_are_those_of_the_whole_tree():
    builder = TraceBuilder()
    main = builder.session(harness="codex")
    builder.call(main)
    child = builder.session(parent=main, harness="codex")
    builder.call(child)
    builder.call(builder.session(parent=child))
    trace = builder.trace()
    traits = traits_of(0, select_calls(trace.calls).calls, trace.sessions, {0: 10.0, 1: 70.0, 2: 30.0})
    assert traits == TreeTraits(harness="codex", calls=3, depth=2, tokens=70.0)
