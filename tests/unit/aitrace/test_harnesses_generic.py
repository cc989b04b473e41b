import pytest

from aitrace.harnesses.detector import Identity, RequestFacts
from aitrace.harnesses.generic import SESSION_HEADERS, generic_identity


def facts(headers, body=None):
    return RequestFacts(path="/v1/chat/completions", headers=headers, body=body or {})


@pytest.mark.parametrize("rule", SESSION_HEADERS, ids=lambda rule: rule.field)
def test_every_common_header_gives_a_session(rule):
    found = generic_identity(facts({rule.field: "s1"}))
    assert found == Identity(session="s1", root="s1", evidence=(rule.name,))


def test_a_parent_header_gives_the_parent():
    found = generic_identity(facts({"x-session-id": "s2", "x-parent-session-id": "s1"}))
    assert (found.session, found.parent, found.root, found.call_class) == ("s2", "s1", "s1", "subagent")
    assert found.evidence == ("generic/x-session-id", "generic/x-parent-session-id")


def test_a_session_is_not_its_own_parent():
    found = generic_identity(facts({"x-session-id": "s1", "x-parent-session-id": "s1"}))
    assert (found.parent, found.root, found.call_class) == (None, "s1", "unknown")


@pytest.mark.parametrize("body", [{"prompt_cache_key": "k"}, {"user": "u"}, {"session_id": "s"}])
def test_what_conversations_may_share_is_no_session(body):
    headers = {"x-parent-session-id": "p", "x-correlation-id": "c", "x-request-id": "r"}
    assert generic_identity(facts(headers, body)) == Identity()
