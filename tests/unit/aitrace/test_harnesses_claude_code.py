"""Header and body values are those of Claude Code 2.1.332 against a scripted endpoint, ids shortened."""

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aitrace.harnesses.claude_code import (
    CLASSES,
    COMPACTED_HEADERS,
    COMPACTION_HEADERS,
    COMPACTION_TEXTS,
    SYNTHETIC,
    VENDOR_CLASSES,
    ClaudeCode,
)
from aitrace.harnesses.detector import RequestFacts
from aitrace.protocols import PROTOCOLS
from aitrace.protocols.protocol import RequestPart

SESSION = "88b3c188-f7d7-40a2-bcb6-856c81af60d7"
AGENT = "ad0cff047069490e9"
USER_AGENT = "claude-cli/2.1.332 (external, sdk-cli)"
HEADERS = {"user-agent": USER_AGENT, "x-claude-code-session-id": SESSION}
BILLING = "x-anthropic-billing-header: cc_version=2.1.332.4b7; cc_entrypoint=sdk-cli;"
CHILD_BILLING = f"{BILLING} cc_is_subagent=true;"
VENDOR_BILLING = f"{BILLING} cch=02285; cc_prompt_id=2c98; cc_turn_origin=sdk; cc_turn_index=1;"
TOOLS = [{"name": "Bash", "description": "runs", "input_schema": {"type": "object"}}]
TASK = {"role": "user", "content": "do the job"}
ANSWER = {"role": "assistant", "content": "done"}


def body(*messages, billing=BILLING, tools=TOOLS, **fields):
    return {
        "model": "claude-opus-5-5",
        "max_tokens": 128000,
        "system": [{"type": "text", "text": billing}, {"type": "text", "text": "You are an agent."}],
        "messages": [*messages],
        "tools": tools,
        **fields,
    }


def facts(headers, value):
    parts = PROTOCOLS["anthropic"].read_request(orjson.dumps(value)).parts
    return RequestFacts(path="/v1/messages", headers=headers, body=value, parts=parts)


def identified(headers, value=None):
    return ClaudeCode().identify(facts(headers, body(TASK) if value is None else value))


def plain_body(**fields):
    return {"model": "m", "max_tokens": 5, "messages": [TASK], **fields}


def text(words, role="user"):
    return RequestPart(role=role, type="text", text=words)


def test_the_session_header_names_the_main_agent():
    found = identified(HEADERS)
    assert (found.harness, found.version) == ("claude-code", "2.1.332")
    assert (found.session, found.parent, found.root, found.agent) == (SESSION, None, SESSION, None)
    assert (found.call_class, found.evidence) == ("main", ("claude-code/session-header",))


def test_a_sub_agent_is_keyed_by_session_and_agent():
    headers = {**HEADERS, "x-claude-code-agent-id": AGENT, "x-claude-code-agent-type": "Explore"}
    found = identified(headers)
    assert (found.session, found.parent, found.root) == (f"{SESSION}/{AGENT}", SESSION, SESSION)
    assert (found.agent, found.call_class) == ("Explore", "subagent")
    assert found.evidence == ("claude-code/session-header", "claude-code/agent-header")


def test_a_nested_agent_has_the_agent_that_spawned_it_as_parent():
    headers = {**HEADERS, "x-claude-code-agent-id": AGENT, "x-claude-code-parent-agent-id": "a1"}
    found = identified(headers)
    assert (found.parent, found.root) == (f"{SESSION}/a1", SESSION)
    assert found.more_ids == (AGENT, "a1")
    assert found.evidence[-1] == "claude-code/parent-agent-header"


def test_an_agent_is_not_its_own_parent():
    headers = {**HEADERS, "x-claude-code-agent-id": AGENT, "x-claude-code-parent-agent-id": AGENT}
    assert identified(headers).parent == SESSION


def test_a_main_agent_has_no_parent_whatever_the_header_says():
    found = identified({**HEADERS, "x-claude-code-parent-agent-id": "a1", "x-claude-code-agent-type": "Plan"})
    assert (found.session, found.parent, found.agent) == (SESSION, None, None)


@pytest.mark.parametrize(
    ("user_id", "rule"),
    [
        (
            f'{{"device_id":"66","account_uuid":"","session_id":"{SESSION}"}}',
            "claude-code/metadata-user-id",
        ),
        (f"user_66aa_account__session_{SESSION}", "claude-code/metadata-user-id-joined"),
    ],
)
def test_without_headers_the_user_id_tells_the_session(user_id, rule):
    found = identified({}, body(TASK, metadata={"user_id": user_id}))
    assert (found.session, found.root, found.version) == (SESSION, SESSION, "2.1.332")
    assert found.evidence == (rule,)


def test_without_an_agent_id_the_task_tells_sub_agents_apart():
    first, again, other = (
        identified(HEADERS, body(*messages, billing=CHILD_BILLING))
        for messages in ((TASK,), (TASK, ANSWER, TASK), ({"role": "user", "content": "another job"},))
    )
    assert first.session == again.session != other.session
    assert (first.parent, first.root, first.call_class) == (SESSION, SESSION, "subagent")
    assert first.evidence == ("claude-code/session-header", "claude-code/subagent-flag")


def test_a_task_is_not_looked_for_among_reminders():
    reminder = {"role": "user", "content": "<system-reminder>x</system-reminder>"}
    plain = identified(HEADERS, body(TASK, billing=CHILD_BILLING))
    assert identified(HEADERS, body(reminder, TASK, billing=CHILD_BILLING)).session == plain.session


@pytest.mark.parametrize(
    "value",
    [body(TASK, billing="be brief"), plain_body(), plain_body(system=7), plain_body(system=[7])],
    ids=["system", "none", "number", "numbers"],
)
def test_another_client_is_not_taken_for_it(value):
    given = RequestFacts(path="/v1/messages", headers={"user-agent": "curl/8"}, body=value)
    assert ClaudeCode().identify(given) is None


@pytest.mark.parametrize(
    "user_id", ["someone", '{"session_id":"s"}', "{", "user_x_account_y_session_z", 7, None]
)
def test_a_user_id_of_another_form_is_no_session(user_id):
    assert identified({}, plain_body(metadata={"user_id": user_id})) is None


def test_the_user_agent_alone_tells_the_harness_but_no_session():
    found = identified({"user-agent": USER_AGENT}, plain_body(tools=TOOLS))
    assert (found.harness, found.session, found.root) == ("claude-code", None, None)
    assert (found.call_class, found.evidence) == ("main", ("claude-code/user-agent",))


def test_the_billing_block_alone_tells_the_harness():
    for system in (BILLING, f"{BILLING}\nYou are"):
        found = identified({}, plain_body(system=system, tools=TOOLS))
        assert (found.harness, found.version, found.session) == ("claude-code", "2.1.332", None)


@pytest.mark.parametrize(("word", "call_class"), CLASSES.items())
def test_the_class_header_tells_the_class(word, call_class):
    found = identified({**HEADERS, "x-claude-code-request-class": word})
    assert (found.call_class, found.evidence[-1]) == (call_class, "claude-code/request-class")


@pytest.mark.parametrize(("word", "call_class"), VENDOR_CLASSES.items())
def test_the_older_class_header_tells_what_is_no_main_turn(word, call_class):
    found = identified({**HEADERS, "x-claude-1p-request-class": word})
    assert (found.call_class, found.evidence[-1]) == (call_class, "claude-code/vendor-request-class")


def test_the_newer_class_header_counts_before_the_older():
    headers = {
        **HEADERS,
        "x-claude-code-request-class": "subagent",
        "x-claude-1p-request-class": "summary-extraction",
    }
    assert identified(headers).call_class == "subagent"


def test_a_class_nobody_knows_leaves_it_to_the_body():
    headers = {**HEADERS, "x-claude-code-request-class": "new", "x-claude-1p-request-class": "main"}
    assert identified(headers).call_class == "main"


@pytest.mark.parametrize("rule", COMPACTION_HEADERS, ids=lambda rule: rule.field)
def test_a_compaction_header_tells_a_compaction(rule):
    found = identified({**HEADERS, rule.field: "auto"})
    assert (found.call_class, found.evidence[-1]) == ("compaction", rule.name)


@pytest.mark.parametrize("rule", COMPACTION_TEXTS, ids=lambda rule: rule.field[:8])
def test_without_headers_the_last_text_tells_a_compaction(rule):
    last = {"role": "user", "content": [{"type": "text", "text": f"{rule.field} now"}]}
    found = identified(HEADERS, body(TASK, ANSWER, last))
    assert (found.call_class, found.evidence[-1]) == ("compaction", rule.name)


@pytest.mark.parametrize("rule", COMPACTED_HEADERS, ids=lambda rule: rule.field)
def test_the_request_after_a_compaction_starts_a_window(rule):
    assert identified({**HEADERS, rule.field: "manual"}).is_window_start
    assert not identified(HEADERS).is_window_start


def test_one_token_is_a_quota_probe():
    found = identified(
        HEADERS, {"model": "m", "max_tokens": 1, "messages": [{"role": "user", "content": "quota"}]}
    )
    assert (found.call_class, found.evidence[-1]) == ("auxiliary", "claude-code/quota-probe")
    assert identified(HEADERS, {**body(TASK), "max_tokens": 2}).call_class == "main"


def test_a_question_without_tools_is_auxiliary():
    found = identified(HEADERS, body(TASK, tools=[]))
    assert (found.call_class, found.evidence[-1]) == ("auxiliary", "claude-code/no-tools")


def test_a_conversation_without_tools_is_not():
    assert identified(HEADERS, body(TASK, ANSWER, TASK, tools=[])).call_class == "main"


def test_a_body_that_could_not_be_read_has_no_class():
    found = ClaudeCode().identify(RequestFacts(path="/v1/messages", headers=HEADERS, body={}))
    assert (found.session, found.call_class) == (SESSION, "unknown")


def test_the_prompt_id_is_in_a_header_or_the_billing_block():
    assert identified({**HEADERS, "x-claude-code-prompt-id": "p1"}).prompt_id == "p1"
    assert identified(HEADERS, body(TASK, billing=VENDOR_BILLING)).prompt_id == "2c98"
    assert identified(HEADERS).prompt_id is None


@pytest.mark.parametrize(
    ("value", "durations"),
    [
        ("Bash=2098", (("Bash", 2_098_000_000),)),
        ("Read=116;Bash=1090", (("Read", 116_000_000), ("Bash", 1_090_000_000))),
        ("mcp__a%3Db%3B=5", (("mcp__a=b;", 5_000_000),)),
        ("Agent=42;Bash=7", (("Bash", 7_000_000),)),
        ("Agent=3412;Task=6398", ()),
        (";".join(["Bash=1"] * 32), (("Bash", 1_000_000),) * 32),
        (";".join(["Bash=1"] * 33), None),
        ("", None),
        ("Bash", None),
        ("=5", None),
        ("Bash=", None),
        ("Bash=-5", None),
        ("Bash=1.5", None),
        ("Bash=²", None),
        ("Bash=" + "9" * 13, None),
        ("Bash=1;", None),
    ],
)
def test_tool_durations_are_named_in_order_without_those_of_agents(value, durations):
    assert identified({**HEADERS, "x-claude-code-prev-tool-durations": value}).tool_durations == durations


def test_no_tool_states_its_time_in_its_result():
    result = RequestPart(role="tool", type="tool_result", text="Wall time: 1.0 seconds", tool_id="t")
    assert ClaudeCode().tool_duration_ns(result) is None


def normalised(value):
    return ClaudeCode().normalised(facts({}, value).parts)


def test_turns_extend_each_other_once_the_billing_block_is_gone():
    first = body(
        {"role": "user", "content": [{"type": "text", "text": "do", "cache_control": {"type": "ephemeral"}}]},
        billing=f"{BILLING} cch=02285;",
    )
    second = body(
        {"role": "user", "content": "do"}, ANSWER, TASK, billing=f"{BILLING} cch=65891; cc_prev_req=req_1;"
    )
    before, after = normalised(first), normalised(second)
    assert len(before) > 0
    assert after[: len(before)] == before


def test_only_the_billing_block_is_taken_out():
    parts = facts({}, body(TASK)).parts
    assert ClaudeCode().normalised(parts) == tuple(
        part for part in parts if not part.text.startswith("x-anthropic")
    )


def test_of_a_joined_system_prompt_the_rest_is_kept():
    texts = [part.text for part in normalised(plain_body(system=f"{BILLING}\nYou are"))]
    assert texts == ["You are", "do the job"]


@pytest.mark.parametrize(
    "value",
    [
        plain_body(),
        plain_body(system="You are"),
        body(TASK, {"role": "user", "content": BILLING}, billing="x"),
    ],
)
def test_a_prompt_without_it_stays_as_it_is(value):
    parts = facts({}, value).parts
    assert ClaudeCode().normalised(parts) == parts


@pytest.mark.parametrize("tag", SYNTHETIC.tags)
def test_texts_in_its_tags_are_synthetic(tag):
    assert ClaudeCode().is_synthetic(text(f"<{tag}>\nx\n</{tag}>\n"))
    assert not ClaudeCode().is_synthetic(text(f"<{tag}>\nx\n</{tag}>\nplease"))


@pytest.mark.parametrize("start", SYNTHETIC.starts)
def test_texts_with_its_starts_are_synthetic(start):
    assert ClaudeCode().is_synthetic(text(f"{start} …"))


def test_system_texts_are_synthetic_and_a_persons_words_are_not():
    assert ClaudeCode().is_synthetic(text("# Environment", role="system"))
    assert not ClaudeCode().is_synthetic(text("please go on"))
    assert not ClaudeCode().is_synthetic(text("<system-reminder>", role="assistant"))


names = st.sampled_from(
    ["user-agent", "x-claude-code-prev-tool-durations"]
    + [
        "x-claude-code-" + end
        for end in ("session-id", "agent-id", "parent-agent-id", "request-class", "prompt-id")
    ]
)
anything = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.text()
    | st.sampled_from([BILLING, CHILD_BILLING, USER_AGENT]),
    lambda inner: (
        st.lists(inner) | st.dictionaries(st.sampled_from(["text", "user_id", "type"]) | st.text(), inner)
    ),
    max_leaves=8,
)
fields = st.sampled_from(["system", "metadata", "max_tokens", "tools", "messages"])


@given(st.dictionaries(names, anything), st.dictionaries(fields, anything))
def test_hostile_input_gives_a_weaker_identity_and_never_raises(headers, value):
    found = ClaudeCode().identify(RequestFacts(path="/v1/messages", headers=headers, body=value))
    assert found is None or (found.session is None) == (found.root is None)
    assert found is None or all(name.startswith("claude-code/") for name in found.evidence)
