import pytest

from aitrace.assembly.additions import Addition
from aitrace.assembly.causes import aside_cause, chain_cause, rest_cause, starter_cause
from aitrace.assembly.sessions import CallState, SessionState, TreeState


def added(*results, typed=False):
    return Addition(is_replaced=False, results=results, tool_uses=(), has_typed=typed, has_announcement=False)


def session(parent=None):
    tree = TreeState(root=0) if parent is None else parent.tree
    return SessionState(id=0, parent=parent, tree=tree)


def call(owner, *, call_class="main", is_aside=False, number=1, has_ended=True, **fields):
    state = CallState(
        id=number,
        session=owner,
        call_class=call_class,
        node=0,
        request_ns=10,
        streamed=True,
        turn=0,
        window=0,
        attempt=1,
        tool_results=0,
        has_ended=has_ended,
        end_ns=20,
        **fields,
    )
    if is_aside:
        owner.last_aside = state
    else:
        owner.last = state
    return state


def cause(owner, *results, typed=False, call_class="main", harness="codex"):
    return chain_cause(owner, added(*results, typed=typed), call_class, harness)


def test_results_are_the_tools_gap():
    root = session()
    call(root, asks_tools=True)
    assert cause(root, "1") == "tool"
    assert cause(session(root), "1") == "tool"


def test_what_was_typed_is_the_users_gap_also_beside_results():
    """Claude Code: tools were stopped, and a prompt typed minutes later carries what had become of them."""
    root = session()
    call(root, asks_tools=True)
    assert cause(root, typed=True) == "user"
    assert cause(root, "1", typed=True) == "user"


def test_a_sub_agent_has_no_user():
    child = session(session())
    assert cause(child, typed=True) == "harness"
    assert cause(child, "1", typed=True) == "tool"
    call(child)
    assert cause(child, call_class="compaction") == "harness"
    assert aside_cause(child, "codex") == "harness"


def test_nothing_new_is_the_harness_doing_or_not_known():
    assert cause(session()) == "harness"
    assert cause(session(), harness=None) == "unknown"
    assert rest_cause(None) == "unknown"


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (None, "harness"),
        ("cut", "backoff"),
        ("refused", "backoff"),
        ("client_abort", "harness"),
        ("unrecorded", "harness"),
    ],
)
def test_after_a_failure_with_nothing_new_the_harness_backed_off(error, expected):
    root = session()
    call(root, error=error)
    assert cause(root) == expected
    assert cause(root, typed=True) == "user"


@pytest.mark.parametrize(
    ("fields", "results", "expected"),
    [
        ({"asks_tools": True}, (), "tool"),
        ({"asks_tools": True}, ("1",), "tool"),
        ({}, (), "user"),
        ({"error": "client_abort"}, (), "user"),
        ({"error": "http_error"}, (), "harness"),
        ({"has_ended": False}, (), "harness"),
        ({"call_class": "compaction"}, (), "harness"),
    ],
    ids=["tools", "with results", "done", "stopped", "too long", "in flight", "a second time"],
)
def test_a_summary_is_asked_for_after_the_tools_or_by_the_user(fields, results, expected):
    root = session()
    call(root, **fields)
    assert cause(root, *results, typed=True, call_class="compaction") == expected


def test_what_follows_a_summary_waited_for_no_tool():
    root = session()
    call(root, call_class="compaction")
    assert cause(root, "1") == "harness"
    assert cause(root, "1", typed=True) == "user"


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, "user"),
        ({"error": "client_abort"}, "user"),
        ({"asks_tools": True}, "harness"),
        ({"has_ended": False}, "harness"),
        ({"error": "refused"}, "harness"),
    ],
    ids=["done", "stopped", "tools", "in flight", "refused"],
)
def test_an_auxiliary_call_comes_from_the_user_where_the_agent_has_nothing_to_do(fields, expected):
    root = session()
    call(root, **fields)
    assert aside_cause(root, "codex") == expected


def test_the_next_auxiliary_call_comes_from_the_same():
    root = session()
    call(root)
    call(root, number=2, is_aside=True)
    assert aside_cause(root, "codex") == "harness"
    assert aside_cause(session(), None) == "unknown"


def test_a_title_comes_after_the_prompt_and_so_the_prompt_no_longer_from_the_user():
    root = session()
    assert starter_cause(call(root, is_aside=True, is_about_prompt=True), "user", "codex") == "harness"
    assert starter_cause(call(root, is_aside=True), "user", "codex") == "user"
