import orjson
import pytest

from aitrace.errors import UsageError
from recorders.client_config import ClientConfig
from recorders.clients import (
    CLIENTS,
    FORWARD,
    REVERSE,
    SEEN_WITH,
    Road,
    client_from_command,
    endpoint_hosts,
    setup,
)

FORWARD_ROAD = Road(mode="forward", url="http://127.0.0.1:7", bundle="/t/bundle.pem", added="/t/added.pem")
NOTHING = ClientConfig()
NO_DAEMON = ["-c", "features.daemon_auto_start=false"]


def reverse_road(upstream="http://up:8000"):
    return Road(mode="reverse", url="http://127.0.0.1:7", upstream=upstream)


def json_of(variables, name):
    return orjson.loads(variables[name])


def test_each_client_is_in_each_table():
    assert set(CLIENTS) == set(FORWARD) == set(REVERSE) == set(SEEN_WITH)


@pytest.mark.parametrize(
    ("command", "client"),
    [
        (["claude"], "claude"),
        (["/opt/x/Claude.exe", "-p"], "claude"),
        (["./codex", "exec", "claude"], "codex"),
        (["opencode"], "opencode"),
        (["npx", "-y", "@anthropic-ai/claude-code@2.1.332"], "claude"),
        (["bunx", "opencode-ai@latest", "run"], "opencode"),
        (["env", "A=1", "codex"], "codex"),
        (["npx", "something"], "generic"),
        (["python", "claude.py"], "generic"),
    ],
)
def test_a_client_is_told_from_its_name_or_what_a_launcher_gets(command, client):
    assert client_from_command(command) == client


@pytest.mark.parametrize("client", CLIENTS)
def test_a_proxied_client_gets_proxy_and_trust_in_both_cases(client):
    found = setup(client, FORWARD_ROAD, [client], {}, NOTHING).environment
    assert {found[name] for name in ("HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy")} == {
        "http://127.0.0.1:7"
    }
    assert found["SSL_CERT_FILE"] == "/t/bundle.pem"
    assert found["NODE_EXTRA_CA_CERTS"] == "/t/added.pem"
    assert found["NO_PROXY"] == found["no_proxy"] == "localhost,127.0.0.1,::1"


def test_codex_gets_its_own_certificate_variable_and_no_daemon():
    ready = setup("codex", FORWARD_ROAD, ["codex", "exec", "hi"], {}, NOTHING)
    assert ready.environment["CODEX_CA_CERTIFICATE"] == "/t/bundle.pem"
    assert ready.command == ("codex", *NO_DAEMON, "exec", "hi")


def test_arguments_are_put_after_the_clients_name_behind_a_launcher():
    command = ["npx", "-y", "@openai/codex", "exec"]
    assert setup("codex", FORWARD_ROAD, command, {}, NOTHING).command == (
        "npx",
        "-y",
        "@openai/codex",
        *NO_DAEMON,
        "exec",
    )


def test_without_a_command_only_variables_are_said():
    assert setup("codex", FORWARD_ROAD, [], {}, NOTHING).command == ()


@pytest.mark.parametrize("road", [FORWARD_ROAD, reverse_road()])
def test_claude_code_sends_its_hints_unless_the_user_says_no(road):
    name = "CLAUDE_CODE_GATEWAY_HINT_HEADERS"
    assert setup("claude", road, ["claude"], {}, NOTHING).environment[name] == "1"
    assert name not in setup("claude", road, ["claude"], {name: "0"}, NOTHING).environment


def test_bundles_of_other_tools_are_replaced_only_where_the_user_has_them():
    environment = setup(
        "generic", FORWARD_ROAD, ["x"], {"PIP_CERT": "/mine", "DENO_CERT": ""}, NOTHING
    ).environment
    assert environment["PIP_CERT"] == "/t/bundle.pem"
    assert "DENO_CERT" not in environment


def test_an_endpoint_on_loopback_is_reached_through_the_proxy():
    environ = {"NO_PROXY": "localhost,corp.example", "ANTHROPIC_BASE_URL": "http://me:pw@localhost:8000/x?y"}
    ready = setup("claude", FORWARD_ROAD, ["claude"], environ, NOTHING)
    assert ready.environment["NO_PROXY"] == "corp.example"
    assert ready.notes[0] == "NO_PROXY of the client leaves out localhost, so that its endpoint is recorded"
    assert "ANTHROPIC_BASE_URL=http://localhost:8000/x)" in ready.notes[1]


def test_a_base_url_of_another_api_is_told_for_a_generic_client_alone():
    environ = {"OPENAI_BASE_URL": "http://[bad"}
    assert "OPENAI_BASE_URL=?" in setup("generic", FORWARD_ROAD, ["x"], environ, NOTHING).notes[0]
    assert setup("codex", FORWARD_ROAD, ["codex"], environ, NOTHING).notes == ()


def test_hosts_of_endpoints_come_from_variables_and_files():
    config = ClientConfig(base_urls={"a": "http://[::1]:1/v1", "bad": "http://[bad"})
    assert endpoint_hosts({"OPENAI_BASE_URL": "https://o.example/v1", "OPENAI_API_BASE": ""}, config) == [
        "o.example",
        "::1",
    ]


def test_a_file_that_cannot_be_read_is_told():
    ready = setup("codex", reverse_road(), ["codex"], {}, ClientConfig(unreadable=("config.toml",)))
    assert ready.notes == ("config.toml cannot be read, so what it says of endpoints is not known",)


def test_settings_that_would_overrule_the_recorder_are_overruled():
    config = ClientConfig(environment={"HTTPS_PROXY": "http://corp:1", "A": "b"})
    command = setup("claude", FORWARD_ROAD, ["claude", "-p", "x"], {}, config).command
    assert command[0:2] + command[3:] == ("claude", "--settings", "-p", "x")
    assert orjson.loads(command[2]) == {"env": {"HTTPS_PROXY": "http://127.0.0.1:7"}}


@pytest.mark.parametrize("given", [["--settings", "f"], ["--settings=f"]])
def test_settings_given_twice_are_refused_with_the_variable(given):
    config = ClientConfig(environment={"HTTPS_PROXY": "http://corp:1"})
    with pytest.raises(UsageError, match="'HTTPS_PROXY'"):
        setup("claude", FORWARD_ROAD, ["claude", *given], {}, config)


@pytest.mark.parametrize(
    ("upstream", "bare", "versioned"),
    [
        ("http://up:8000", "", "/v1"),
        ("http://up:8000/v1", "", "/v1"),
        ("http://up:8000/llm/v1", "/llm", "/llm/v1"),
        ("http://up:8000/api/v3", "/api/v3", "/api/v3"),
    ],
)
def test_a_base_url_has_the_endpoints_path(upstream, bare, versioned):
    road = reverse_road(upstream)
    generic = setup("generic", road, ["x"], {}, NOTHING).environment
    assert generic["ANTHROPIC_BASE_URL"] == f"http://127.0.0.1:7{bare}"
    assert generic["OPENAI_BASE_URL"] == generic["OPENAI_API_BASE"] == f"http://127.0.0.1:7{versioned}"
    assert (
        setup("claude", road, ["claude"], {}, NOTHING).environment["ANTHROPIC_BASE_URL"].endswith(f":7{bare}")
    )


@pytest.mark.parametrize(
    ("config", "setting"),
    [
        (NOTHING, 'openai_base_url="http://127.0.0.1:7/v1"'),
        (
            ClientConfig(provider="openai", base_urls={"openai": "http://x/a/"}),
            'openai_base_url="http://127.0.0.1:7/a"',
        ),
        (ClientConfig(provider="my-own"), 'model_providers.my-own.base_url="http://127.0.0.1:7/v1"'),
        (
            ClientConfig(provider="a.b", base_urls={"a.b": "http://x/y"}),
            'model_providers."a.b".base_url="http://127.0.0.1:7/y"',
        ),
    ],
)
def test_codex_gets_the_base_url_of_its_provider_on_its_command_line(config, setting):
    ready = setup("codex", reverse_road(), ["codex", "exec"], {}, config)
    assert ready.command == ("codex", *NO_DAEMON, "-c", setting, "exec")
    assert ready.environment == {}


def test_codex_with_a_local_provider_gets_its_variable():
    ready = setup("codex", reverse_road(), ["codex", "--oss"], {}, ClientConfig(provider="ollama"))
    assert ready.environment == {"CODEX_OSS_BASE_URL": "http://127.0.0.1:7/v1"}


def test_opencode_gets_the_base_url_of_its_provider_over_the_users_own_content():
    environ = {
        "OPENCODE_CONFIG_CONTENT": '{"model": "a/x", "provider": {"a": {"options": {"k": 1}}}} // mine'
    }
    ready = setup("opencode", reverse_road(), ["opencode"], environ, ClientConfig(provider="a"))
    assert json_of(ready.environment, "OPENCODE_CONFIG_CONTENT") == {
        "model": "a/x",
        "provider": {"a": {"options": {"k": 1, "baseURL": "http://127.0.0.1:7/v1"}}},
    }


def test_opencode_without_a_known_provider_is_refused_with_what_to_do():
    with pytest.raises(UsageError, match="belongs to a provider") as caught:
        setup("opencode", reverse_road(), ["opencode"], {}, NOTHING)
    assert "-m PROVIDER/MODEL" in caught.value.hint


def test_opencode_with_content_that_cannot_be_read_is_refused():
    with pytest.raises(UsageError, match="OPENCODE_CONFIG_CONTENT cannot be read"):
        setup("opencode", reverse_road(), ["o"], {"OPENCODE_CONFIG_CONTENT": "{"}, ClientConfig(provider="a"))


def test_a_proxy_of_the_user_is_not_asked_for_the_recorder():
    environ = {"http_proxy": "http://corp:1", "no_proxy": "a.example"}
    environment = setup("claude", reverse_road(), ["claude"], environ, NOTHING).environment
    assert environment["NO_PROXY"] == environment["no_proxy"] == "a.example,127.0.0.1"
