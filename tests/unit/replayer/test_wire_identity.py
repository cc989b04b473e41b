"""Which ids calls carry, in each mode."""

from dataclasses import replace
from uuid import UUID

import orjson
import pytest

from aitrace.harnesses import identify
from aitrace.harnesses.detector import RequestFacts
from aitrace.schema import Session
from aitrace.testing import make_call_result, make_trace
from replayer.identity.hints import hints_from_json
from replayer.identity.identity_names import header_template
from replayer.identity.wire_identity import Caller, WireIdentity, caller_of
from replayer.planning.options import LoadOptions
from replayer.planning.plan import build_plan


def tree(harness: str | None) -> tuple[Session, ...]:
    """A main agent, its child and its grandchild."""
    return (
        Session(id=0, root=0, harness=harness),
        Session(id=1, root=0, parent=0, harness=harness, agent="Explore"),
        Session(id=2, root=0, parent=1, harness=harness),
    )


def identity(name, harness=None, run_id="run", **options) -> WireIdentity:
    return WireIdentity(tree(harness), name, run_id=run_id, **options)


def caller(session=0, instance=1, **fields) -> Caller:
    return Caller(session=session, instance=instance, call="run-7", **fields)


def test_claude_code_has_one_session_for_the_tree_and_an_agent_for_each_child():
    ids = identity("native", "claude-code")
    main, child, grandchild = (ids.headers(caller(session)) for session in range(3))
    key = "X-Claude-Code-Session-Id"
    assert main.keys() == {key}
    assert UUID(main[key]).version == 4
    assert main[key] == child[key] == grandchild[key]
    assert child["x-claude-code-agent-id"].startswith("a")
    assert len(child["x-claude-code-agent-id"]) == 17
    assert child["x-claude-code-agent-type"] == "Explore"
    assert "x-claude-code-parent-agent-id" not in child
    assert grandchild["x-claude-code-parent-agent-id"] == child["x-claude-code-agent-id"]


def test_claude_code_names_class_and_prompt():
    ids = identity("native", "claude-code")
    first = ids.headers(caller(call_class="main", turn=0))
    child = ids.headers(caller(1, call_class="subagent", turn=0))
    later = ids.headers(caller(call_class="main", turn=1))
    compaction = ids.headers(caller(call_class="compaction", turn=1))
    assert first["x-claude-code-request-class"] == "main"
    assert first["x-claude-code-prompt-id"] == child["x-claude-code-prompt-id"]
    assert later["x-claude-code-prompt-id"] != first["x-claude-code-prompt-id"]
    assert "x-claude-code-prompt-id" not in compaction
    assert compaction["x-claude-code-request-class"] == "compaction"


def seen_by_the_recorder(harness, protocol, session, **fields):
    """What a request with these ids says of itself."""
    ids, who = identity("native", harness), caller(session, **fields)
    headers = {name.lower(): value for name, value in ids.headers(who).items()}
    path = {"anthropic": "/v1/messages", "responses": "/v1/responses", "chat": "/v1/chat/completions"}[
        protocol
    ]
    return identify(RequestFacts(path=path, headers=headers, body=ids.body_fields(who, protocol)))[1]


@pytest.mark.parametrize(
    ("harness", "protocol", "parents"),
    [
        ("claude-code", "anthropic", [None, 0, 1]),
        ("codex", "responses", [None, 0, 1]),
        ("opencode", "chat", [None, 0, 1]),
    ],
)
def test_the_ids_of_a_harness_are_read_as_the_same_tree(harness, protocol, parents):
    seen = [seen_by_the_recorder(harness, protocol, session, call_class="unknown") for session in range(3)]
    assert [each.harness for each in seen] == [harness] * 3
    assert len({each.session for each in seen}) == 3
    assert [each.parent for each in seen] == [None if one is None else seen[one].session for one in parents]


@pytest.mark.parametrize(
    ("harness", "protocol", "session", "call_class"),
    [
        ("claude-code", "anthropic", 0, "main"),
        ("claude-code", "anthropic", 1, "subagent"),
        ("claude-code", "anthropic", 0, "compaction"),
        ("claude-code", "anthropic", 0, "auxiliary"),
        ("codex", "responses", 0, "main"),
        ("codex", "responses", 1, "subagent"),
        ("codex", "responses", 0, "compaction"),
        ("codex", "responses", 0, "auxiliary"),
    ],
)
def test_what_a_call_is_for_and_its_prompt_are_read_as_they_were(harness, protocol, session, call_class):
    told = {"call_class": call_class, "turn": 1}
    seen = seen_by_the_recorder(harness, protocol, session, **told)
    assert seen.call_class == call_class
    if call_class in ("main", "subagent"):
        assert (
            seen.prompt_id == seen_by_the_recorder(harness, protocol, 0, call_class="main", turn=1).prompt_id
        )
        assert (
            seen.prompt_id != seen_by_the_recorder(harness, protocol, 0, call_class="main", turn=2).prompt_id
        )


def test_claude_code_repeats_the_session_in_the_body():
    ids = identity("native", "claude-code")
    owner = orjson.loads(ids.body_fields(caller(1), "anthropic")["metadata"]["user_id"])
    assert owner["session_id"] == ids.headers(caller())["X-Claude-Code-Session-Id"]
    assert ids.body_fields(caller(1), "chat") == {}


def test_codex_has_a_thread_for_each_agent_and_counts_windows():
    ids = identity("native", "codex")
    main, child = ids.headers(caller(window=2)), ids.headers(caller(1))
    assert main["session-id"] == main["thread-id"] == child["session-id"] == child["x-codex-parent-thread-id"]
    assert child["thread-id"] != main["thread-id"]
    assert main["x-codex-window-id"] == f"{main['thread-id']}:2"
    assert (main.get("x-openai-subagent"), child["x-openai-subagent"]) == (None, "collab_spawn")
    assert {UUID(headers["thread-id"]).version for headers in (main, child)} == {7}
    assert ids.body_fields(caller(1), "responses") == {"prompt_cache_key": main["thread-id"]}


def test_opencode_has_a_session_for_each_agent():
    ids = identity("native", "opencode")
    main, child = ids.headers(caller()), ids.headers(caller(1))
    assert main["x-session-id"] == main["x-session-affinity"] == child["x-parent-session-id"]
    assert main["x-session-id"].startswith("ses_")
    assert ids.body_fields(caller(1), "responses") == {"prompt_cache_key": child["x-session-id"]}


def test_a_harness_that_is_not_known_gets_the_headers_of_routers():
    assert identity("native").headers(caller()).keys() == identity("affinity").headers(caller()).keys()


def test_dynamo_names_session_and_parent():
    ids = identity("dynamo", "claude-code")
    main, child = ids.headers(caller()), ids.headers(caller(1))
    assert main.keys() == {"X-Dynamo-Session-ID"}
    assert child["X-Dynamo-Parent-Session-ID"] == main["X-Dynamo-Session-ID"]
    assert ids.body_fields(caller(), "anthropic") == {}


def test_dynamo_alone_is_told_of_the_end_of_a_session_that_has_an_id():
    ids = identity("dynamo", "claude-code")
    assert ids.final_headers(caller(1)) == {**ids.headers(caller(1)), "X-Dynamo-Session-Final": "true"}
    assert identity("dynamo", faults={"missing": 1.0}).final_headers(caller()) == {}
    assert [identity(name, "codex").final_headers(caller()) for name in ("native", "affinity", "none")] == [
        {}
    ] * 3


def test_routers_get_one_id_per_session_under_each_name():
    main, child = (identity("affinity", "codex").headers(caller(session)) for session in (0, 1))
    assert main.keys() == {"X-Session-ID", "x-session-affinity", "X-SMG-Routing-Key"}
    assert len(set(main.values())) == 1
    assert child.keys() - main.keys() == {"x-parent-session-id"}
    assert child["x-parent-session-id"] == main["X-Session-ID"] != child["X-Session-ID"]


def test_without_identity_nothing_is_sent():
    assert identity("none", "codex").headers(caller()) == {}


@pytest.mark.parametrize("name", ["native", "dynamo", "affinity"])
def test_ids_are_fresh_for_each_playing_and_each_run_and_the_same_within(name):
    def ids(run_id, instance):
        return identity(name, "codex", run_id=run_id).headers(caller(instance=instance))

    assert ids("a", 1) == ids("a", 1)
    assert set(ids("a", 1).values()).isdisjoint(ids("a", 2).values())
    assert set(ids("a", 1).values()).isdisjoint(ids("b", 1).values())


def test_templates_name_ids():
    templates = [header_template("X-Tenant: t-{root}"), header_template("X-Way: {parent}/{session}/{call}")]
    ids = identity("dynamo", "codex", templates=templates)
    main, child = ids.headers(caller()), ids.headers(caller(1))
    root = main["X-Dynamo-Session-ID"]
    assert main["X-Tenant"] == child["X-Tenant"] == f"t-{root}"
    assert child["X-Way"] == f"{root}/{child['X-Dynamo-Session-ID']}/run-7"
    assert "X-Way" not in main


def test_a_forgotten_session_has_the_same_ids_again():
    ids = identity("native", "opencode")
    before = ids.headers(caller())
    ids.forget(1, 0)
    assert ids.headers(caller()) == before


def test_the_caller_of_a_planned_call_knows_its_turn_and_its_window():
    trace = make_trace(sessions=2, calls=3)
    calls = [replace(call, turn=call.id, window=call.id + 1) for call in trace.calls]
    plan = build_plan(replace(trace, calls=tuple(calls)), LoadOptions(trees=3))
    who = [caller_of(planned, "run") for planned in plan.every_call()]
    assert [each.call for each in who] == [f"run-{index}" for index in range(9)]
    assert [(each.turn, each.window) for each in who[3:6]] == [(3, 4), (4, 5), (5, 6)]
    assert {(each.instance, each.session) for each in who} == {(1, 0), (1, 1), (2, 0)}


def ids_of(fault, name="affinity", calls=("a", "b")):
    """Headers of two calls each of two playings whose ids all have this fault."""
    ids = identity(name, "claude-code", faults={fault: 1.0})
    return [
        ids.headers(Caller(session=0, instance=instance, call=call)) for instance in (1, 2) for call in calls
    ]


def test_sessions_with_missing_ids_keep_headers_that_name_none():
    templates = [header_template("X-Tenant: acme"), header_template("X-Way: {call}")]
    ids = identity("native", "codex", templates=templates, faults={"missing": 1.0})
    assert ids.headers(caller()) == {"X-Tenant": "acme"}


def test_sessions_with_missing_ids_send_none():
    assert ids_of("missing") == [{}] * 4
    assert identity("native", "claude-code", faults={"missing": 1.0}).body_fields(caller(), "anthropic") == {}


def test_sessions_with_shared_ids_have_one_for_all():
    assert len({headers["X-Session-ID"] for headers in ids_of("shared")}) == 1
    assert len({headers["X-Claude-Code-Session-Id"] for headers in ids_of("shared", "native")}) == 1


def test_sessions_with_churning_ids_have_another_with_every_call():
    assert len({headers["X-Session-ID"] for headers in ids_of("churn")}) == 4


def test_faults_strike_their_share_of_the_sessions_the_same_ones_for_a_seed():
    def struck(seed):
        ids = identity("affinity", faults={"missing": 0.1, "churn": 0.3}, seed=seed)
        return [ids.fault_of(instance, 0) for instance in range(2_000)]

    assert 140 < struck(1).count("missing") < 260
    assert 500 < struck(1).count("churn") < 700
    assert struck(1) == struck(1)
    assert struck(1) != struck(2)
    assert set(struck(1)) == {"missing", "churn", None}


def test_results_say_what_was_wrong_with_the_ids_of_their_session():
    result = make_call_result(0)
    assert identity("affinity", faults={"churn": 1.0}).marked(result).identity_fault == "churn"
    assert identity("affinity").marked(result) is result


def hints(*rules):
    return hints_from_json(orjson.dumps(list(rules)), place="hints.json")


def test_hints_carry_the_same_ids_as_the_headers_and_lie_over_the_bodys_own():
    rules = hints(
        {"body": {"metadata": {"team": "{session}"}, "cache_salt": "{root}"}, "headers": {"X-Up": "{parent}"}}
    )
    ids = identity("native", "claude-code", hints=rules)
    main, child = (ids.body_fields(caller(session), "anthropic") for session in (0, 1))
    assert main["metadata"].keys() == {"user_id", "team"}
    assert child["metadata"]["team"] == ids.headers(caller(1))["x-claude-code-agent-id"]
    assert child["cache_salt"] == main["cache_salt"] == ids.headers(caller(1))["X-Up"]
    assert "X-Up" not in ids.headers(caller(0))


def test_hints_know_harness_class_and_agent():
    rules = hints(
        {"where": {"harness": "codex", "class": "subagent", "agent": "Explore"}, "body": {"priority": 1}}
    )
    ids = identity("none", "codex", hints=rules)
    assert ids.body_fields(caller(1, call_class="subagent"), "chat") == {"priority": 1}
    assert ids.body_fields(caller(2, call_class="subagent"), "chat") == {}


def test_a_session_without_ids_keeps_hints_that_name_none():
    rules = hints(
        {"body": {"session_id": "{session}", "priority": 1}, "headers": {"X-A": "{call}", "X-B": "low"}}
    )
    ids = identity("native", "codex", hints=rules, faults={"missing": 1.0})
    assert (ids.body_fields(caller(), "chat"), ids.headers(caller())) == ({"priority": 1}, {"X-B": "low"})
