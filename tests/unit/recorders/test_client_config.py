import pytest

from recorders.client_config import (
    ClientConfig,
    claude_config,
    codex_config,
    object_from_jsonc,
    opencode_config,
)


def test_nothing_configured_says_nothing():
    nothing = ClientConfig()
    assert claude_config({}) == codex_config({}, ["codex"]) == opencode_config({}, ["opencode"]) == nothing


def test_claude_codes_settings_give_variables_the_last_file_the_strongest():
    texts = {
        "user": b'{"env": {"ANTHROPIC_BASE_URL": "http://a", "X": 1}, "model": "m"}',
        "project": b'{"env": {"ANTHROPIC_BASE_URL": "http://b"}}',
        "local": b'{"env": null}',
    }
    config = claude_config(texts)
    assert config.environment == {"ANTHROPIC_BASE_URL": "http://b", "X": "1"}
    assert config.base_urls == {"ANTHROPIC_BASE_URL": "http://b"}


@pytest.mark.parametrize("text", [b"{", b"[1]", b"\xff"])
def test_a_file_that_cannot_be_read_is_named_and_passed_over(text):
    texts = {"bad": text, "good": b'{"env": {"A": "1"}}'}
    assert claude_config(texts) == ClientConfig(environment={"A": "1"}, unreadable=("bad",))
    assert opencode_config({"bad": text}, []).unreadable == ("bad",)


CODEX = {
    "user": b"""
model_provider = "mine"
openai_base_url = "http://o/v1"
profile = "work"
[model_providers.mine]
base_url = "http://m/v1"
[model_providers.theirs]
name = "no URL"
[profiles.work]
model_provider = "worked"
[profiles.other]
model = "m"
"""
}


@pytest.mark.parametrize(
    ("arguments", "provider"),
    [
        ([], "worked"),
        (["--profile", "other"], "mine"),
        (["-p", "absent"], "mine"),
        (["--profile=other", "-c", "model_provider=given"], "given"),
        (["-c", 'model_provider="a"', "--config", "model_provider='b'", "-p", "other"], "b"),
        (["--config=profile='other'"], "mine"),
        (["-p"], "worked"),
        (["--", "-p", "other"], "worked"),
        (["--oss"], "oss"),
        (["--oss", "-c", "oss_provider=ollama"], "ollama"),
        (["-c", "profile=other", "-c", "model_provider=3"], None),
    ],
)
def test_codex_provider_is_that_of_its_arguments_profile_or_file(arguments, provider):
    assert codex_config(CODEX, ["codex", *arguments]).provider == provider


def test_codex_base_urls_are_by_provider():
    config = codex_config(CODEX, ["-c", 'model_providers."a.b".base_url="http://ab"', "-c", "x"])
    assert config.base_urls == {"mine": "http://m/v1", "a.b": "http://ab", "openai": "http://o/v1"}


@pytest.mark.parametrize("text", [b"a = ", b"\xff"])
def test_a_codex_file_that_cannot_be_read_is_named(text):
    assert codex_config({"bad": text, **CODEX}, []).unreadable == ("bad",)


def test_odd_tables_of_codex_say_nothing():
    assert codex_config({"f": b"model_providers = 1\nprofiles = 2\n"}, []) == ClientConfig()


def test_opencodes_provider_is_that_of_its_model():
    texts = {
        "global": b'{"model": "a/x", "provider": {"a": {"options": {"baseURL": "http://a"}}, "c": 1}}',
        "project": b'{"model": "b/y/z", "provider": {"b": {"options": {"baseURL": "http://b"}}}}',
    }
    config = opencode_config(texts, ["opencode", "run"])
    assert config.provider == "b"
    assert config.base_urls == {"a": "http://a", "b": "http://b"}
    assert opencode_config(texts, ["opencode", "-m", "a/x"]).provider == "a"
    assert opencode_config(texts, ["opencode", "--model=none"]).provider is None


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (b"", {}),
        (b"// only a comment", {}),
        (b'{"a": "//x", /* b */ "b": [1, 2,], // c\n}', {"a": "//x", "b": [1, 2]}),
        (b'{"a": "\\"/*,}"}', {"a": '"/*,}'}),
    ],
)
def test_comments_and_last_commas_are_read_over(text, value):
    assert object_from_jsonc(text) == value


def test_what_is_no_object_is_refused():
    with pytest.raises(ValueError, match="no object"):
        object_from_jsonc(b"[]")
