"""Header and body values are those of OpenCode 1.18.33 against a scripted endpoint, ids shortened."""

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aitrace.harnesses.detector import RequestFacts
from aitrace.harnesses.opencode import HISTORY_TEXT, SESSION_HEADERS, SYNTHETIC, SYSTEM_TEXTS, OpenCode
from aitrace.protocols import PROTOCOLS
from aitrace.protocols.protocol import RequestPart

USER_AGENT = "opencode/1.18.33 ai-sdk/provider-utils/4.0.23 runtime/bun/1.3.14"
MAIN = "ses_dd6bfd3e3ffe"
CHILD = "ses_dd6bfa481ffe"
HEADERS = {"user-agent": USER_AGENT, "x-session-id": MAIN, "x-session-affinity": MAIN}
TOOLS = [{"type": "function", "function": {"name": "bash", "parameters": {}}}]


def body(*, system="You are opencode, an interactive CLI tool", user="do the job", **fields):
    messages = [{"role": "system", "content": system}, {"role": "user", "content": user}]
    return {"model": "m", "max_tokens": 8192, "messages": messages, **fields}


def facts(headers, value):
    parts = PROTOCOLS["chat"].read_request(orjson.dumps(value)).parts
    return RequestFacts(path="/v1/chat/completions", headers=headers, body=value, parts=parts)


def identified(headers, value=None):
    return OpenCode().identify(facts(headers, body(tools=TOOLS) if value is None else value))


def text(words, role="user"):
    return RequestPart(role=role, type="text", text=words)


@pytest.mark.parametrize("rule", SESSION_HEADERS, ids=lambda rule: rule.field)
def test_each_session_header_names_the_agent(rule):
    found = identified({"user-agent": USER_AGENT, rule.field: MAIN})
    assert (found.harness, found.version) == ("opencode", "1.18.33")
    assert (found.session, found.parent, found.root) == (MAIN, None, MAIN)
    assert (found.call_class, found.evidence) == ("main", (rule.name,))


def test_a_sub_agent_names_its_parent():
    found = identified({**HEADERS, "x-session-id": CHILD, "x-parent-session-id": MAIN})
    assert (found.session, found.parent, found.root, found.call_class) == (CHILD, MAIN, MAIN, "subagent")
    assert found.evidence == ("opencode/session-header", "opencode/parent-session-header")


def test_a_session_is_not_its_own_parent():
    found = identified({**HEADERS, "x-parent-session-id": MAIN})
    assert (found.parent, found.root, found.call_class) == (None, MAIN, "main")


def test_its_ids_are_known_without_a_user_agent():
    assert identified({"x-session-id": MAIN}).session == MAIN
    assert identified({"x-opencode-session": "anything"}).session == "anything"


def test_another_clients_session_header_is_not_its_own():
    assert identified({"x-session-id": "0f1e", "user-agent": "crush/1.0"}) is None
    assert identified({}) is None


def test_the_user_agent_alone_tells_the_harness_but_no_session():
    found = identified({"user-agent": USER_AGENT, "x-parent-session-id": MAIN})
    assert (found.harness, found.session, found.parent, found.root) == ("opencode", None, None, None)
    assert found.evidence == ("opencode/user-agent",)


def test_the_request_header_is_the_prompts_id_of_the_main_agent_only():
    zen = {"x-opencode-session": MAIN, "x-opencode-request": "msg_1"}
    assert identified(zen).prompt_id == "msg_1"
    assert identified({**zen, "x-opencode-session": CHILD, "x-parent-session-id": MAIN}).prompt_id is None
    assert identified(HEADERS).prompt_id is None


@pytest.mark.parametrize(
    ("words", "prompt_id"),
    [
        (["do the job"], "msg_1"),
        (["look at @x", "Called the Read tool with the following input: {}"], "msg_1"),
        (["Generate a title for this conversation:", "do the job"], "msg_1"),
        (["Continue if you have next steps, or stop"], None),
        (["<system-reminder>\nThe user sent the following message:\nhurry\n</system-reminder>"], None),
    ],
)
def test_a_message_that_it_wrote_itself_is_no_prompt(words, prompt_id):
    """To compact and to go on after it, it puts messages of its own into the history, with ids like any other."""
    headers = {"x-opencode-session": MAIN, "x-opencode-request": "msg_1"}
    messages = [{"role": "user", "content": word} for word in words]
    answer = {"role": "assistant", "content": "so far"}
    value = {"model": "m", "messages": [*messages, answer], "tools": TOOLS}
    assert identified(headers, value).prompt_id == prompt_id


def test_a_compaction_is_of_no_prompt():
    headers = {"x-opencode-session": MAIN, "x-opencode-request": "msg_1"}
    found = identified(headers, body(user=f"{HISTORY_TEXT.field}\n[User]: x", tools=TOOLS))
    assert (found.call_class, found.prompt_id) == ("compaction", None)


@pytest.mark.parametrize(
    ("rule", "call_class"), SYSTEM_TEXTS, ids=lambda value: getattr(value, "field", value)
)
def test_the_system_prompt_tells_titles_and_compactions(rule, call_class):
    found = identified(HEADERS, body(system=f"{rule.field}. Always"))
    assert (found.call_class, found.evidence[-1]) == (call_class, rule.name)


def test_a_flattened_history_is_a_compaction():
    found = identified(HEADERS, body(user=f"{HISTORY_TEXT.field}\n[User]: x", tools=TOOLS))
    assert (found.call_class, found.evidence[-1]) == ("compaction", "opencode/history-text")


def test_a_question_without_tools_is_auxiliary():
    found = identified(HEADERS, body())
    assert (found.call_class, found.evidence[-1]) == ("auxiliary", "opencode/no-tools")


def test_a_body_that_could_not_be_read_has_no_class():
    found = OpenCode().identify(RequestFacts(path="/v1/messages", headers=HEADERS, body={}))
    assert (found.session, found.call_class) == (MAIN, "unknown")


def test_it_tells_no_tool_times():
    assert identified(HEADERS).tool_durations is None
    result = RequestPart(role="tool", type="tool_result", text="Wall time: 1.0 seconds", tool_id="t")
    assert OpenCode().tool_duration_ns(result) is None


def test_nothing_in_its_prompts_has_to_go():
    parts = facts(HEADERS, body(tools=TOOLS)).parts
    assert OpenCode().normalised(parts) == parts
    assert OpenCode().rules == ()


@pytest.mark.parametrize("words", [*SYNTHETIC.starts, *(f"<{tag} id=1>x</{tag}>" for tag in SYNTHETIC.tags)])
def test_its_own_lines_are_synthetic(words):
    assert OpenCode().is_synthetic(text(words))
    assert OpenCode().is_synthetic(text(f" {words}"))


def test_system_texts_are_synthetic_and_a_persons_words_are_not():
    assert OpenCode().is_synthetic(text("You are opencode", role="system"))
    assert not OpenCode().is_synthetic(text("what did we do"))
    assert not OpenCode().is_synthetic(text("What did we do so far?", role="assistant"))


names = st.sampled_from(
    ["user-agent", "x-parent-session-id", "x-opencode-request", "x-opencode-session", "x-session-id"]
)
anything = st.none() | st.integers() | st.text() | st.sampled_from([USER_AGENT, MAIN]) | st.lists(st.text())


@given(st.dictionaries(names, anything), st.dictionaries(st.sampled_from(["tools", "messages"]), anything))
def test_hostile_input_gives_a_weaker_identity_and_never_raises(headers, value):
    found = OpenCode().identify(RequestFacts(path="/v1/responses", headers=headers, body=value))
    assert found is None or (found.session is None) == (found.root is None)
    assert found is None or all(name.startswith("opencode/") for name in found.evidence)
