"""Header and body values are those of Codex 0.171.0 against a scripted endpoint, ids shortened."""

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aitrace.harnesses.codex import REQUEST_KINDS, SUBAGENT_KINDS, SYNTHETIC, THREAD_SOURCES, Codex
from aitrace.harnesses.detector import RequestFacts
from aitrace.protocols import PROTOCOLS
from aitrace.protocols.protocol import RequestPart

USER_AGENT = "codex_exec/0.171.0 (Debian 12.0.0; x86_64) xterm-256color (codex_exec; 0.171.0)"
ROOT = "01a2293f-5aa1-7622-8109-ec4d2c421ea8"
ROOT_AGENT = "/root"
"""Codex's name of its main agent."""
CHILD = "01a2293f-6c68-7a32-86e0-330250488ada"
UA = {"user-agent": USER_AGENT}
USER_ITEM = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "do the job"}]}
ANSWER_ITEM = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "done"}]}


def turn(**fields):
    return orjson.dumps({"session_id": ROOT, "thread_id": ROOT, "request_kind": "turn", **fields}).decode()


def metadata(**fields):
    return {"session_id": ROOT, "thread_id": ROOT, "x-codex-window-id": f"{ROOT}:0", **fields}


def facts(headers, value=None, path="/v1/responses", **fields):
    body = {"model": "gpt-5.5", "input": [USER_ITEM], **({} if value is None else value), **fields}
    parts = PROTOCOLS["responses"].read_request(orjson.dumps(body)).parts
    return RequestFacts(path=path, headers=headers, body=body, parts=parts)


def identified(headers, value=None, **fields):
    return Codex().identify(facts(headers, value, **fields))


def of_turn(client=None, **fields):
    """Identity of a request whose `client_metadata` carries this turn metadata."""
    return identified(
        UA, {"client_metadata": metadata(**{"x-codex-turn-metadata": turn(**fields), **(client or {})})}
    )


@pytest.mark.parametrize(
    ("headers", "body", "rule"),
    [
        ({}, {"client_metadata": metadata()}, "codex/client-metadata"),
        (
            {},
            {"client_metadata": {"x-codex-turn-metadata": turn()}},
            "codex/client-turn-metadata",
        ),
        ({}, {"client_metadata": {"x-codex-window-id": f"{ROOT}:3"}}, "codex/client-window-id"),
        ({"thread-id": ROOT, **UA}, {}, "codex/thread-id"),
        ({"thread_id": ROOT, **UA}, {}, "codex/thread-id"),
        ({"x-codex-thread-id": ROOT}, {}, "codex/thread-id"),
        ({"x-codex-turn-metadata": turn()}, {}, "codex/turn-metadata"),
        ({"x-codex-window-id": f"{ROOT}:0"}, {}, "codex/window-id"),
        (
            {},
            {"client_metadata": {"session_id": ROOT, "x-codex-installation-id": "i"}},
            "codex/client-session",
        ),
        ({"session-id": ROOT, **UA}, {}, "codex/session-id"),
        ({"session_id": ROOT, **UA}, {}, "codex/session-id"),
        ({"conversation_id": ROOT, "originator": "codex_cli_rs"}, {}, "codex/session-id"),
        (UA, {"prompt_cache_key": ROOT}, "codex/prompt-cache-key"),
    ],
)
def test_each_place_of_an_id_names_the_main_agent(headers, body, rule):
    found = identified(headers, body)
    assert (found.harness, found.session, found.parent, found.root) == ("codex", ROOT, None, ROOT)
    assert (found.call_class, found.evidence[0]) == ("main", rule)


@pytest.mark.parametrize(
    ("headers", "version"),
    [
        (UA, "0.171.0"),
        ({"user-agent": "codex-tui/0.171.0 (Debian)"}, "0.171.0"),
        ({"user-agent": "Codex Desktop/0.172.0-alpha.1 (Mac)"}, "0.172.0-alpha.1"),
        ({"originator": "codex_exec", "version": "0.171.0"}, "0.171.0"),
        ({"originator": "codex_exec"}, None),
    ],
)
def test_the_version_is_in_the_user_agent_or_a_header(headers, version):
    assert identified(headers).version == version


@pytest.mark.parametrize(
    ("headers", "client", "rule"),
    [
        ({}, {"x-codex-parent-thread-id": ROOT}, "codex/parent-thread-id"),
        ({}, {"x-codex-turn-metadata": turn(parent_thread_id=ROOT)}, "codex/parent-in-metadata"),
        ({"x-codex-parent-thread-id": ROOT}, {}, "codex/parent-thread-id"),
        ({}, {}, "codex/client-session"),
    ],
)
def test_each_place_of_a_parent_makes_a_sub_agent(headers, client, rule):
    found = identified(headers, {"client_metadata": metadata(thread_id=CHILD, **client)})
    assert (found.session, found.parent, found.root) == (CHILD, ROOT, ROOT)
    assert (found.call_class, found.evidence[1]) == ("subagent", rule)


def test_a_nested_agent_has_the_trees_root():
    client = metadata(thread_id="third", **{"x-codex-parent-thread-id": CHILD})
    found = identified(UA, {"client_metadata": client})
    assert (found.session, found.parent, found.root) == ("third", CHILD, ROOT)


def test_without_a_tree_the_parent_is_the_root():
    found = identified({"thread-id": CHILD, "x-codex-parent-thread-id": ROOT})
    assert (found.parent, found.root) == (ROOT, ROOT)


def test_a_cache_key_or_a_users_own_thread_makes_no_sub_agent():
    assert identified({"thread-id": CHILD, **UA}, {"prompt_cache_key": "mine"}).parent is None
    client = metadata(
        thread_id=CHILD, **{"x-codex-turn-metadata": turn(thread_id=CHILD, thread_source="user")}
    )
    assert identified(UA, {"client_metadata": client}).parent is None


@pytest.mark.parametrize(("kind", "agent"), [("collab_spawn", None), ("review", "review"), (None, None)])
def test_that_it_was_spawned_is_no_kind_of_agent(kind, agent):
    headers = {"x-openai-subagent": kind} if kind else {}
    found = identified({"x-codex-parent-thread-id": ROOT, "thread-id": CHILD, **headers})
    assert found.agent == agent


def test_the_messages_own_ids_win_over_the_handshakes():
    handshake = {
        **UA,
        "thread-id": ROOT,
        "session-id": ROOT,
        "x-codex-turn-metadata": turn(request_kind="prewarm", turn_id="old"),
    }
    own = metadata(thread_id=CHILD, **{"x-codex-parent-thread-id": ROOT, "root_turn_id": "t1"})
    found = identified(handshake, {"type": "response.create", "client_metadata": own})
    assert (found.session, found.parent, found.call_class, found.prompt_id) == (CHILD, ROOT, "subagent", "t1")


def test_what_the_handshake_says_of_its_own_request_is_not_taken_for_a_messages():
    handshake = {"thread-id": ROOT, "x-codex-turn-metadata": turn(request_kind="prewarm", turn_id="old")}
    found = identified(handshake, {"type": "response.create"})
    assert (found.session, found.call_class, found.prompt_id) == (ROOT, "main", None)
    assert identified(handshake).call_class == "auxiliary"


@pytest.mark.parametrize(("kind", "call_class"), REQUEST_KINDS.items())
def test_the_request_kind_tells_the_class(kind, call_class):
    found = of_turn(request_kind=kind, thread_source="user")
    assert (found.call_class, found.evidence[-1]) == (call_class, "codex/request-kind")


@pytest.mark.parametrize(("source", "call_class"), THREAD_SOURCES.items())
def test_the_threads_source_tells_the_class_of_a_turn(source, call_class):
    found = of_turn(thread_source=source)
    assert (found.call_class, found.evidence[-1]) == (call_class, "codex/thread-source")


@pytest.mark.parametrize(("kind", "call_class"), [*SUBAGENT_KINDS.items(), ("new", "subagent")])
def test_without_a_source_the_sub_agent_header_tells_the_class(kind, call_class):
    for found in (of_turn({"x-openai-subagent": kind}), identified({**UA, "x-openai-subagent": kind})):
        assert (found.call_class, found.evidence[-1]) == (call_class, "codex/subagent-header")


def test_nothing_generated_is_auxiliary():
    found = identified(UA, {"type": "response.create", "generate": False, "input": []})
    assert (found.call_class, found.evidence[-1]) == ("auxiliary", "codex/generate-false")
    assert identified(UA, generate=True).call_class == "main"


@pytest.mark.parametrize(
    ("body", "path", "rule"),
    [
        ({}, "/v1/responses/compact", "codex/compact-route"),
        ({"input": [USER_ITEM, {"type": "compaction_trigger"}]}, "/v1/responses", "codex/compaction-trigger"),
        (
            {
                "input": [
                    {**USER_ITEM, "content": "You are performing a CONTEXT CHECKPOINT COMPACTION. Create"},
                ]
            },
            "/v1/responses",
            "codex/compaction-text",
        ),
    ],
)
def test_without_metadata_route_and_body_tell_a_compaction(body, path, rule):
    found = identified(UA, body, path=path)
    assert (found.call_class, found.evidence[-1]) == ("compaction", rule)


def test_a_body_that_could_not_be_read_has_no_class():
    found = Codex().identify(RequestFacts(path="/v1/responses", headers={"thread-id": ROOT, **UA}, body={}))
    assert (found.session, found.call_class) == (ROOT, "unknown")


def test_the_user_agent_alone_tells_the_harness_but_no_session():
    found = identified(UA)
    assert (found.harness, found.session, found.root) == ("codex", None, None)
    assert found.evidence == ("codex/user-agent",)


@pytest.mark.parametrize(
    "headers", [{}, {"session-id": ROOT}, {"user-agent": "opencode/1.18.33", "thread-id": ROOT}]
)
def test_another_client_is_not_taken_for_it(headers):
    assert identified(headers, {"prompt_cache_key": ROOT, "client_metadata": {"session_id": ROOT}}) is None


def test_the_root_threads_turn_is_the_prompts_id():
    assert of_turn({"root_turn_id": "r", "turn_id": "t"}).prompt_id == "r"
    assert of_turn(root_turn_id="r", turn_id="t").prompt_id == "r"
    assert of_turn({"turn_id": "t"}).prompt_id == "t"
    assert of_turn(turn_id="t").prompt_id == "t"
    assert of_turn(turn_id="").prompt_id is None


def test_a_sub_agents_own_turn_is_not_the_prompts_id():
    client = metadata(thread_id=CHILD, turn_id="t", **{"x-codex-parent-thread-id": ROOT})
    assert identified(UA, {"client_metadata": client}).prompt_id is None


COMPACTED = [USER_ITEM, {"type": "compaction", "encrypted_content": "c"}]


@pytest.mark.parametrize(
    ("fields", "body", "expected"),
    [
        ({"window_number": 1}, {"input": COMPACTED}, True),
        ({"window_number": 0}, {"input": COMPACTED}, False),
        ({"window_number": 1}, {"input": []}, False),
        ({"window_number": 1}, {"input": [*COMPACTED, ANSWER_ITEM]}, False),
        ({"window_number": 1}, {"input": [*COMPACTED, {"type": "reasoning", "summary": []}]}, False),
        (
            {"window_number": 1},
            {"input": [*COMPACTED, {"type": "function_call", "name": "x", "arguments": "", "call_id": "c"}]},
            False,
        ),
        ({"window_number": 1}, {"input": COMPACTED, "previous_response_id": "resp_1"}, False),
        ({"window_number": 1, "request_kind": "compaction"}, {"input": COMPACTED}, False),
    ],
)
def test_only_the_first_request_of_a_later_window_starts_it(fields, body, expected):
    client = metadata(**{"x-codex-turn-metadata": turn(**fields)})
    assert identified(UA, {"client_metadata": client, **body}).is_window_start is expected


@pytest.mark.parametrize(
    ("window", "expected"), [(f"{ROOT}:2", True), (f"{ROOT}:0", False), (f"{ROOT}:x", False)]
)
def test_the_windows_number_is_in_its_id_too(window, expected):
    assert identified({**UA, "x-codex-window-id": window}, {"input": COMPACTED}).is_window_start is expected
    client = {"x-codex-window-id": window}
    assert identified(UA, {"input": COMPACTED, "client_metadata": client}).is_window_start is expected


def test_an_item_that_is_no_object_is_no_answer():
    body = {"input": [7, {"type": 7}]}
    found = Codex().identify(
        RequestFacts(
            path="/v1/responses",
            headers={},
            body={
                **body,
                "client_metadata": {
                    "x-codex-window-id": f"{ROOT}:1",
                    "x-codex-turn-metadata": turn(thread_source="user"),
                },
            },
        )
    )
    assert found.is_window_start


def duration_ns(text, type_="tool_result"):
    return Codex().tool_duration_ns(RequestPart(role="tool", type=type_, text=text, tool_id="c"))


def test_the_wall_time_of_a_result_is_the_tools_duration():
    function = "Chunk ID: 778a3e\nWall time: 1.8592 seconds\nProcess exited with code 0\nOutput:\nnotes.txt\n"
    code_mode = '[{"text":"Script completed\\nWall time 2.1 seconds\\nOutput:\\n","type":"input_text"}]'
    assert duration_ns(function) == 1_859_200_000
    assert duration_ns(code_mode) == 2_100_000_000
    assert duration_ns("Wall time: 3 seconds") == 3_000_000_000


@pytest.mark.parametrize(
    "text",
    [
        "",
        f'{{"task_name":"{ROOT_AGENT}/child"}}',
        "Chunk ID: 7\nOutput:\nWall time: 9.9 seconds\n",
        "x" * 400 + "\nWall time: 1.0 seconds",
        "Wall time: fast seconds",
        "Wall time: 9999999999 seconds",
        "no Wall time: 1.0 seconds",
    ],
)
def test_a_time_that_the_tools_own_output_holds_is_none(text):
    assert duration_ns(text) is None


def test_only_results_have_a_duration():
    assert duration_ns("Wall time: 1.0 seconds", "text") is None


def test_nothing_in_its_prompts_has_to_go():
    parts = facts(UA).parts
    assert Codex().normalised(parts) == parts
    assert Codex().rules == ()


def text(words, role="user"):
    return RequestPart(role=role, type="text", text=words)


@pytest.mark.parametrize("words", [*SYNTHETIC.starts, *(f"<{tag}>x</{tag}>" for tag in SYNTHETIC.tags)])
def test_its_own_notes_are_synthetic(words):
    assert Codex().is_synthetic(text(words))


def test_developer_notes_are_synthetic_and_a_persons_words_are_not():
    note = {"type": "message", "role": "developer", "content": "<permissions instructions>"}
    (part,) = facts(UA, {"input": [note]}).parts
    assert Codex().is_synthetic(part)
    assert not Codex().is_synthetic(text("do the job"))
    assert not Codex().is_synthetic(text("<turn_aborted>", role="assistant"))


names = st.sampled_from(
    [
        "user-agent",
        "thread-id",
        "session-id",
        "x-codex-turn-metadata",
        "x-codex-window-id",
        "x-codex-parent-thread-id",
    ]
)
words = st.text() | st.sampled_from([USER_AGENT, ROOT, "{", turn(), turn(window_number=2), f"{ROOT}:1"])
anything = st.recursive(
    st.none() | st.booleans() | st.integers() | words,
    lambda inner: (
        st.lists(inner)
        | st.dictionaries(
            st.sampled_from(["thread_id", "session_id", "type", "role", "x-codex-turn-metadata"]), inner
        )
    ),
    max_leaves=8,
)
fields = st.sampled_from(
    ["client_metadata", "input", "prompt_cache_key", "generate", "type", "previous_response_id"]
)


@given(st.dictionaries(names, anything), st.dictionaries(fields, anything))
def test_hostile_input_gives_a_weaker_identity_and_never_raises(headers, value):
    found = Codex().identify(RequestFacts(path="/v1/responses", headers=headers, body=value))
    assert found is None or (found.session is None) == (found.root is None)
    assert found is None or all(name.startswith("codex/") for name in found.evidence)
