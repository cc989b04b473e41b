import pytest
from hypothesis import given
from hypothesis import strategies as st

from aitrace.harnesses import AGENT_TOOLS, DETECTORS, identify
from aitrace.harnesses.detector import Identity, RequestFacts
from aitrace.harnesses.routes import REQUEST_HEADERS

SENT = {
    "claude-code": {"x-claude-code-session-id": "s"},
    "codex": {"thread-id": "s", "user-agent": "codex_exec/0.171.0"},
    "opencode": {"x-session-id": "ses_1", "user-agent": "opencode/1.18.33"},
}


def facts(headers, path="/v1/messages", body=None):
    return RequestFacts(path=path, headers=headers, body=body or {})


@pytest.mark.parametrize("detector", DETECTORS, ids=lambda detector: detector.name)
def test_each_harness_is_known_by_its_own_detector(detector):
    found, identity = identify(facts(SENT[detector.name]))
    assert found is detector
    assert identity.harness == detector.name


class Headers(dict):
    """Headers that remember what they were asked for."""

    def __init__(self, *args):
        super().__init__(*args)
        self.asked = set()

    def get(self, name, default=None):
        self.asked.add(name)
        return super().get(name, default)


@pytest.mark.parametrize("harness", [*SENT, None])
def test_detectors_read_only_headers_that_reach_them(harness):
    headers = Headers(SENT.get(harness, {}))
    identify(facts(headers))
    assert len(headers.asked) > 5
    assert headers.asked <= REQUEST_HEADERS


def test_every_agent_tool_is_of_a_known_harness():
    assert {tool.harness for tool in AGENT_TOOLS} == {detector.name for detector in DETECTORS}


def test_an_unknown_harness_has_the_ids_of_common_headers():
    detector, identity = identify(facts({"x-session-id": "s", "user-agent": "crush/1.0"}))
    assert detector is None
    assert (identity.harness, identity.session, identity.evidence) == (None, "s", ("generic/x-session-id",))


def test_a_request_that_says_nothing_has_an_empty_identity():
    assert identify(facts({})) == (None, Identity())


@pytest.mark.parametrize("harness", SENT)
def test_dynamos_ids_win_and_the_harness_stays_known(harness):
    detector, identity = identify(facts({**SENT[harness], "x-dynamo-session-id": "d"}))
    assert detector is not None
    assert (identity.harness, identity.session, identity.root) == (harness, "d", "d")


def test_the_path_of_a_count_wins_over_the_class_header():
    headers = {"x-claude-code-session-id": "s", "x-claude-code-request-class": "auxiliary"}
    path = "/v1/messages/count_tokens"
    assert identify(facts(headers, path))[1].call_class == "count_tokens"
    assert identify(facts({}, path))[1].call_class == "count_tokens"


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)
fields = st.sampled_from(
    ["metadata", "client_metadata", "system", "tools", "messages", "input", "max_tokens"]
)


@given(
    st.text(),
    st.dictionaries(st.sampled_from(sorted(REQUEST_HEADERS)), st.text()),
    st.dictionaries(fields, anything),
)
def test_no_request_makes_it_fail(path, headers, body):
    detector, identity = identify(facts(headers, path, body))
    assert (identity.harness is None) == (detector is None)
    assert (identity.session is None) == (identity.root is None)
    assert identity.parent != identity.session or identity.parent is None
