import orjson

from aitrace.testing import TraceBuilder
from replayer.identity.hints import hints_from_json
from replayer.identity.identity_view import protocol_of_tree, text_from_views, tree_view
from replayer.identity.wire_identity import WireIdentity


def a_trace():
    """Two trees; the second has a sub-agent, a call that only counts tokens, and one that was tried again."""
    builder = TraceBuilder()
    builder.call(builder.session(harness="codex"), [builder.segment(10)])
    main = builder.session(harness="claude-code")
    for turn in range(2):
        builder.call(main, [builder.segment(10)], call_class="main", turn=turn)
    builder.call(main, [builder.segment(1)], call_class="count_tokens")
    builder.call(builder.session(parent=main, harness="claude-code", agent="Explore"), [builder.segment(9)])
    builder.session(parent=main)
    return builder.trace()


def views(name="native", root=1, hints=(), **options):
    trace = a_trace()
    rules = hints_from_json(orjson.dumps(list(hints)), place="hints.json")
    ids = WireIdentity(trace.sessions, name, run_id="run", hints=rules, **options)
    return tree_view(trace.sessions, trace.calls, ids, root=root, protocol="anthropic")


def test_sessions_of_the_tree_with_a_call_to_be_sent_are_shown():
    assert [(view.session, view.parent, view.agent, view.calls) for view in views()] == [
        (1, None, None, 2),
        (2, 1, "Explore", 1),
    ]
    assert [(view.session, view.harness) for view in views(root=0)] == [(0, "codex")]


def test_what_differs_from_call_to_call_is_told():
    main, child = views()
    carried = {each.name: (each.calls, each.values) for each in main.headers}
    assert carried["X-Claude-Code-Session-Id"] == (2, 1)
    assert carried["x-claude-code-prompt-id"] == (2, 2)
    assert "x-claude-code-agent-id" in [each.name for each in child.headers]


def test_what_tells_of_a_sessions_end_is_no_header_of_its_calls():
    main, _ = views("dynamo")
    assert [each.name for each in main.headers] == ["X-Dynamo-Session-ID"]
    assert main.final == {main.headers[0].name: main.headers[0].first, "X-Dynamo-Session-Final": "true"}
    assert [view.final for view in views("native")] == [{}, {}]


def test_nested_fields_of_the_body_have_the_names_above():
    main, _ = views("none", hints=[{"body": {"nvext": {"agent_hints": {"priority": 1}, "empty": {}}}}])
    assert [(each.name, each.first) for each in main.body] == [
        ("nvext.agent_hints.priority", 1),
        ("nvext.empty", {}),
    ]


def test_faulty_ids_are_named():
    assert {view.fault for view in views(faults={"churn": 1.0})} == {"churn"}


def test_the_text_has_a_line_for_each_header_and_field():
    hints = [{"body": {"priority": 1, "long": "x" * 400}, "headers": {"X-C": "{call}"}}]
    lines = text_from_views(views("affinity", hints=hints)).split("\n")
    assert lines[0] == "Session 1 (claude-code), 2 calls"
    assert lines[4] == "  header X-C: call-1   (2 values, this is the first)"
    assert lines[5] == "  body   priority: 1"
    assert lines[6].endswith("xx…")
    assert lines[7] == "Session 2 of session 1 (claude-code, Explore), 1 call"


def test_the_text_says_how_many_calls_have_a_header_and_where_there_is_nothing():
    hints = [{"where": {"agent": "Explore"}, "headers": {"X-A": "1"}}, {"headers": {"X-P": "{parent}"}}]
    assert "X-A: 1\n" in text_from_views(views("none", hints=hints))
    final = "  header X-Dynamo-Session-Final: true   (of one more request, at its end)"
    assert text_from_views(views("dynamo")).split("\n")[2] == final
    bare = text_from_views(views("affinity", faults={"missing": 1.0}, root=0))
    assert bare == "Session 0 (codex), 1 call, ids missing\n  nothing that says whose they are"


def test_the_protocol_of_a_tree_is_that_of_its_first_call_that_tells_one():
    builder = TraceBuilder()
    other, main = builder.session(), builder.session()
    builder.call(other, [builder.segment(1)], protocol="chat")
    builder.call(main, [builder.segment(1)], protocol=None)
    builder.call(builder.session(parent=main), [builder.segment(1)], protocol="responses")
    trace = builder.trace()
    assert [protocol_of_tree(trace.sessions, trace.calls, root) for root in (other, main)] == [
        "chat",
        "responses",
    ]
    assert protocol_of_tree(trace.sessions, trace.calls[1:2], main) is None
