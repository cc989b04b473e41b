import pytest

from aitrace.assembly.additions import Addition
from aitrace.assembly.sessions import CallState, SessionState, ToolUse, TreeState
from aitrace.assembly.waits import (
    aside_waits,
    chain_waits,
    find_spawner,
    goes_on_after,
    repeated_call,
    retry_wait,
)
from aitrace.schema import Dependency


def added(*results, typed=False, announced=False):
    return Addition(
        is_replaced=False,
        results=results,
        tool_uses=(),
        has_typed=typed,
        has_announcement=announced,
    )


def session(parent=None, **fields):
    tree = TreeState(root=0) if parent is None else parent.tree
    return SessionState(id=0, parent=parent, tree=tree, **fields)


def call(owner, number, end_ns=None, *, call_class="main", **fields):
    state = CallState(
        id=number,
        session=owner,
        call_class=call_class,
        node=fields.pop("node", number),
        request_ns=10 * number,
        streamed=True,
        turn=0,
        window=0,
        attempt=1,
        tool_results=0,
        has_ended=fields.pop("has_ended", end_ns is not None),
        end_ns=end_ns,
        **fields,
    )
    owner.tree.first = owner.tree.first or state
    owner.tree.last = state
    if call_class == "main":
        owner.before_last, owner.last = owner.last, state
    else:
        owner.last_aside = state
    return state


def wait(call, relation, trigger, gap_ns, cause="harness"):
    return Dependency(call=call, relation=relation, trigger=trigger, gap_ns=gap_ns, cause=cause)


def waits(owner, addition=None, at_ns=100, cause="harness", warm_up=None):
    return chain_waits(owner, addition or added(), at_ns, cause, harness="codex", warm_up=warm_up)


def test_the_first_call_of_a_tree_waits_for_nothing():
    assert waits(session()) == ()
    assert aside_waits(session(), 0, "harness") == ()


def test_a_call_waits_for_the_end_of_the_one_before_in_its_chain():
    main = session()
    call(main, 3, 50)
    call(main, 4, 60, call_class="auxiliary")
    assert waits(main, cause="tool") == (wait(3, "sequence", "completion", 50, "tool"),)


@pytest.mark.parametrize(
    "fields", [{}, {"end_ns": 101}, {"has_ended": True}], ids=["in flight", "ends later", "end not known"]
)
def test_it_waits_for_the_dispatch_where_the_end_is_not_known_or_later(fields):
    main = session()
    call(main, 3, **fields)
    assert waits(main) == (wait(3, "sequence", "dispatch", 70),)


@pytest.mark.parametrize(("is_about_prompt", "cause"), [(True, "harness"), (False, "user")])
def test_the_first_call_of_a_root_hangs_on_the_auxiliary_call_that_started_the_tree(is_about_prompt, cause):
    main = session()
    call(main, 1, 15, call_class="auxiliary", is_about_prompt=is_about_prompt)
    call(main, 2, 25, call_class="count_tokens")
    assert waits(main, cause="user") == (wait(1, "sequence", "dispatch", 90, cause),)


def test_a_call_waits_for_the_end_of_what_warmed_up_for_it():
    main = session()
    warm = call(main, 1, 15, call_class="auxiliary")
    assert waits(main, warm_up=warm) == (wait(1, "sequence", "completion", 85),)
    call(main, 2, 25)
    again = call(main, 3, call_class="auxiliary")
    assert waits(main, warm_up=again) == (
        wait(2, "sequence", "completion", 75),
        wait(3, "sequence", "dispatch", 70),
    )


def test_if_a_child_started_the_tree_it_is_its_own_auxiliary_call():
    main = session()
    call(session(main), 1, 15)
    call(main, 2, 25, call_class="auxiliary")
    assert waits(main) == (wait(2, "sequence", "dispatch", 80),)


def test_a_root_whose_children_were_seen_first_waits_for_their_latest_call():
    main = session()
    child = session(main)
    main.open_children.append(child)
    call(child, 1, 15)
    assert waits(main, added(announced=True)) == (wait(1, "join", "completion", 85),)


def test_an_auxiliary_call_waits_for_the_latest_call_of_its_session():
    main = session()
    call(main, 1, 15)
    assert aside_waits(main, 100, "harness") == (wait(1, "sequence", "completion", 85),)
    call(main, 2, call_class="auxiliary")
    assert aside_waits(main, 100, "harness") == (wait(2, "sequence", "dispatch", 80),)


def test_the_first_calls_of_a_child_wait_for_the_call_that_started_it():
    main = session()
    child = session(main, spawner=call(main, 1, 15))
    assert waits(child, added("1"), cause="tool") == (wait(1, "spawn", "completion", 85),)
    assert aside_waits(child, 100, "harness") == (wait(1, "spawn", "completion", 85),)
    warm = call(child, 2, 30, call_class="auxiliary")
    assert waits(child) == (wait(1, "spawn", "completion", 85),)
    assert waits(child, warm_up=warm) == (
        wait(1, "spawn", "completion", 85),
        wait(2, "sequence", "completion", 70),
    )


@pytest.mark.parametrize(
    ("fields", "expected"),
    [({}, ("completion", None)), ({"has_ended": True}, ("dispatch", 90))],
    ids=["in flight", "end not known"],
)
def test_a_child_does_not_begin_before_the_answer_that_asks_for_it(fields, expected):
    """With a gap that would count from the dispatch, a replay on a slow endpoint would begin it too early."""
    main = session()
    child = session(main, spawner=call(main, 1, **fields))
    assert waits(child) == (wait(1, "spawn", *expected),)


def test_a_failed_call_with_the_same_prompt_and_purpose_is_repeated():
    main = session()
    failed = call(main, 1, 15, node=7, error="refused")
    assert repeated_call(main, "main", 7, 20) is failed
    assert repeated_call(main, "main", 8, 20) is None
    assert repeated_call(main, "compaction", 7, 20) is None
    assert repeated_call(main, "auxiliary", 7, 20) is None
    assert repeated_call(main, "main", 7, 14) is None


def test_a_call_that_succeeded_is_in_flight_or_was_followed_by_another_is_not_repeated():
    main = session()
    call(main, 1, 15, node=7)
    assert repeated_call(main, "main", 7, 20) is None
    call(main, 2, node=7)
    assert repeated_call(main, "main", 7, 20) is None
    call(main, 3, 35, node=7, error="cut")
    call(main, 4, 45, node=8)
    assert repeated_call(main, "main", 7, 50) is None


def test_an_auxiliary_call_is_repeated_whatever_the_chain_did_since():
    main = session()
    failed = call(main, 1, 15, node=7, error="refused", call_class="auxiliary")
    main.failed_asides[7] = failed
    call(main, 2, 25)
    assert repeated_call(main, "auxiliary", 7, 50) is failed


@pytest.mark.parametrize(
    ("error", "streamed", "cause"),
    [
        ("refused", True, "backoff"),
        ("cut", True, "backoff"),
        ("error_event", False, "harness"),
        ("client_abort", True, "harness"),
        ("unrecorded", True, "harness"),
    ],
)
def test_a_retry_waits_for_the_failure_alone(error, streamed, cause):
    failed = call(session(), 1, 15, error=error)
    assert retry_wait(failed, 40, streamed=streamed) == wait(1, "retry", "completion", 25, cause)


def test_an_agent_goes_on_after_tool_calls_but_those_that_hand_back_its_result():
    assert goes_on_after(("Bash",))
    assert goes_on_after((None,))
    assert not goes_on_after(())
    assert not goes_on_after(("StructuredOutput",))


def family(end_ns=50, *, asks_tools=False, spawns=1, has_ended=True):
    """A parent whose call 1 started a child, which has made call 2."""
    main = session()
    spawner = call(main, 1, 15, spawns=spawns)
    child = session(main, spawner=spawner)
    call(child, 2, end_ns, asks_tools=asks_tools, has_ended=has_ended)
    main.open_children.append(child)
    main.tools["t1"] = ToolUse(call=spawner, name="Agent" if spawns else "acme")
    main.tools["t2"] = ToolUse(call=spawner, name="Bash")
    main.tools["t3"] = ToolUse(call=spawner, name="wait_agent")
    main.tools["t4"] = ToolUse(call=call(session(), 0), name="Agent")
    return main, child


SEQUENCE = wait(1, "sequence", "completion", 85)
JOIN = wait(2, "join", "completion", 50)


@pytest.mark.parametrize(
    ("addition", "is_joined"),
    [
        (added("t1"), True),
        (added("t2"), False),
        (added("t3"), True),
        (added("t4"), False),
        (added("t2", "t1"), True),
        (added("strange"), True),
        (added(None), True),
        (added(announced=True), True),
        (added(typed=True), False),
        (added(), False),
    ],
)
def test_a_child_that_is_over_is_joined_by_its_result_a_wait_or_an_announcement(addition, is_joined):
    main, child = family()
    assert waits(main, addition) == ((SEQUENCE, JOIN) if is_joined else (SEQUENCE,))
    assert main.open_children == ([] if is_joined else [child])


def test_where_no_tool_is_known_to_start_agents_any_result_of_that_call_joins():
    main, _ = family(spawns=0)
    assert waits(main, added("t2")) == (SEQUENCE, JOIN)


def test_a_child_that_hangs_on_no_call_is_joined_by_a_wait():
    main, child = family()
    child.spawner = None
    assert waits(main, added("t1")) == (SEQUENCE,)
    assert waits(main, added("t3")) == (SEQUENCE, JOIN)


@pytest.mark.parametrize(
    "options", [{"asks_tools": True}, {"end_ns": 101}, {"end_ns": None, "has_ended": False}]
)
def test_a_child_that_works_on_is_not_joined(options):
    main, child = family(**options)
    assert waits(main, added("t1")) == (SEQUENCE,)
    assert main.open_children == [child]


def test_a_child_that_was_asked_for_a_summary_goes_on():
    main, child = family()
    child.last = None
    call(child, 2, 50)
    child.last.call_class = "compaction"
    assert waits(main, added("t1")) == (SEQUENCE,)


def test_a_child_of_which_only_auxiliary_calls_were_seen_is_not_joined():
    main, child = family()
    child.last = None
    assert waits(main, added("t1")) == (SEQUENCE,)


def test_a_join_waits_for_the_end_even_where_its_time_is_not_known():
    main, _ = family(end_ns=None)
    assert waits(main, added("t1")) == (SEQUENCE, wait(2, "join", "completion", None))


def test_a_child_begins_while_its_parents_answer_streams():
    main = session()
    call(main, 1, 15)
    streaming = call(main, 2)
    assert find_spawner(main, None, 30) is streaming


def test_a_child_begins_after_the_answer_that_asks_for_it():
    main = session()
    asked = call(main, 1, 15, spawns=1)
    assert find_spawner(main, None, 30) is asked


def test_a_child_that_is_slower_than_its_parent_belongs_to_the_answer_before():
    main = session()
    asked = call(main, 1, 15, spawns=1)
    streaming = call(main, 2)
    assert find_spawner(main, None, 30) is asked
    asked.children = 1
    assert find_spawner(main, None, 30) is streaming


def test_the_tool_call_tells_the_call_where_the_source_knows_it():
    main = session()
    asked = call(main, 1, 15)
    main.tools["t1"] = ToolUse(call=asked, name="acme")
    latest = call(main, 2, 25)
    assert find_spawner(main, "t1", 30) is asked
    assert find_spawner(main, "strange", 30) is latest


def test_without_a_call_of_the_parent_it_is_the_nearest_one():
    root = session()
    parent = session(root)
    assert find_spawner(None, None, 30) is None
    assert find_spawner(parent, None, 30) is None
    sibling = call(session(root), 1, 15)
    assert find_spawner(parent, None, 30) is sibling
    above = call(root, 2, 25)
    call(session(root), 3, 28)
    assert find_spawner(parent, None, 30) is above
    aside = call(parent, 4, 29, call_class="auxiliary")
    assert find_spawner(parent, None, 30) is aside
