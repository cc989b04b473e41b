"""Which protocol a route speaks."""

import pytest

from aitrace.protocols import PROTOCOLS, protocol_for_path


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("/v1/messages", "anthropic"),
        ("/v1/messages?beta=true", "anthropic"),
        ("/proxy/anthropic/v1/messages/", "anthropic"),
        ("/v1/responses", "responses"),
        ("/backend-api/codex/responses", "responses"),
        ("/v1/chat/completions", "chat"),
        ("/openai/deployments/x/chat/completions?api-version=1", "chat"),
    ],
)
def test_generation_routes_are_known_with_any_prefix_and_query(path, name):
    assert protocol_for_path(path) is PROTOCOLS[name]


@pytest.mark.parametrize(
    "path",
    [
        "/",
        "",
        "/v1/messages/count_tokens?beta=true",
        "/v1/messages/batches",
        "/v1/threads/t/messages",
        "/v1/responses/resp_1",
        "/v1/completions",
        "/v1/models",
        "/health?next=/v1/messages",
        "/v1/xresponses",
    ],
)
def test_other_routes_are_not(path):
    assert protocol_for_path(path) is None


@pytest.mark.parametrize("name", PROTOCOLS)
def test_a_protocol_knows_its_own_name_and_path(name):
    assert PROTOCOLS[name].name == name
    assert protocol_for_path(PROTOCOLS[name].path) is PROTOCOLS[name]
