import pytest

from aitrace.harnesses.routes import REQUEST_HEADERS, RESPONSE_HEADERS, Route, recorded_route

RECORDED = [
    ("POST", "/v1/messages?beta=true", Route(protocol="anthropic")),
    ("POST", "/gateway/v1/messages", Route(protocol="anthropic")),
    ("POST", "/v1/messages/count_tokens?beta=true", Route(protocol="anthropic", is_count_tokens=True)),
    ("POST", "/v1/responses", Route(protocol="responses")),
    ("POST", "/backend-api/codex/responses", Route(protocol="responses")),
    ("GET", "/v1/responses", Route(protocol="responses")),
    ("GET", "/backend-api/codex/responses", Route(protocol="responses")),
    ("POST", "/backend-api/codex/responses/compact", Route(protocol="responses", is_compaction=True)),
    ("POST", "/v1/chat/completions", Route(protocol="chat")),
    ("POST", "/chat/completions/", Route(protocol="chat")),
]
# What the three clients sent besides, towards the vendors' hosts.
NOT_RECORDED = [
    ("HEAD", "/api/hello"),
    ("HEAD", "/v1/messages"),
    ("GET", "/v1/messages"),
    ("GET", "/v1/chat/completions"),
    ("OPTIONS", "/v1/responses"),
    ("GET", "/v1/responses/resp_1"),
    ("GET", "/v1/models"),
    ("GET", "/backend-api/codex/models?client_version=0.171.0"),
    ("POST", "/v1/messages/batches"),
    ("POST", "/api/event_logging/v2/batch"),
    ("POST", "/backend-api/codex/analytics-events/events"),
    ("GET", "/api/claude_code/settings"),
    ("GET", "/wham/accounts/check"),
    ("GET", "/health"),
    ("POST", ""),
]


@pytest.mark.parametrize(("method", "path", "route"), RECORDED)
def test_generation_routes_are_recorded_whatever_their_prefix_and_query(method, path, route):
    assert recorded_route(method, path) == route


@pytest.mark.parametrize(("method", "path"), NOT_RECORDED)
def test_nothing_else_is_recorded(method, path):
    assert recorded_route(method, path) is None


def test_header_names_are_lower_case():
    assert [name for name in REQUEST_HEADERS | RESPONSE_HEADERS if name != name.lower()] == []


@pytest.mark.parametrize(
    "word",
    [
        "auth",
        "api-key",
        "cookie",
        "account",
        "organization",
        "device",
        "installation",
        "project",
        "ip",
        "host",
    ],
)
def test_no_header_that_names_a_person_or_a_credential_is_kept(word):
    kept = {
        part
        for name in REQUEST_HEADERS | RESPONSE_HEADERS
        for part in [*name.replace("_", "-").split("-"), name]
    }
    assert word not in kept
    assert not any(word in name for name in kept if len(word) > 4)
