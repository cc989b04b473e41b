from aitrace.harnesses.detector import Identity
from aitrace.harnesses.dynamo import with_dynamo_ids

NATIVE = Identity(
    harness="opencode",
    version="1.18.33",
    session="ses_1",
    parent="ses_0",
    root="ses_0",
    call_class="auxiliary",
    evidence=("opencode/session-header",),
)


def test_without_its_header_nothing_changes():
    assert with_dynamo_ids({"x-dynamo-parent-session-id": "p"}, NATIVE) is NATIVE


def test_its_ids_win_over_the_clients_own():
    found = with_dynamo_ids({"x-dynamo-session-id": "d"}, NATIVE)
    assert (found.session, found.parent, found.root) == ("d", None, "d")
    assert (found.harness, found.version, found.call_class) == ("opencode", "1.18.33", "auxiliary")
    assert found.evidence == ("dynamo/session-id", "opencode/session-header")


def test_its_parent_makes_a_sub_agent_of_an_unknown_client():
    headers = {"x-dynamo-session-id": "d", "x-dynamo-parent-session-id": "p"}
    found = with_dynamo_ids(headers, Identity())
    assert (found.session, found.parent, found.root, found.call_class) == ("d", "p", "p", "subagent")
    assert found.evidence == ("dynamo/session-id", "dynamo/parent-session-id")


def test_a_class_that_the_client_told_stays():
    headers = {"x-dynamo-session-id": "d", "x-dynamo-parent-session-id": "p"}
    assert with_dynamo_ids(headers, NATIVE).call_class == "auxiliary"


def test_a_parent_equal_to_the_session_is_none():
    headers = {"x-dynamo-session-id": "d", "x-dynamo-parent-session-id": "d"}
    found = with_dynamo_ids(headers, Identity(call_class="main"))
    assert (found.parent, found.root, found.call_class) == (None, "d", "main")


def test_an_id_too_long_is_none():
    assert with_dynamo_ids({"x-dynamo-session-id": "d" * 257}, NATIVE) is NATIVE
