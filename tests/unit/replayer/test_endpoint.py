import pytest

from aitrace.errors import UsageError
from aitrace.observe import ResponseObserver
from aitrace.protocols import PROTOCOLS
from replayer.endpoint import (
    TLS_FAILED,
    Endpoint,
    base_url_from_text,
    check_page_url,
    credential_headers,
    models_from_body,
    shown_text,
    unreachable,
    unusable,
)

URL = "http://host/v1/chat/completions"


@pytest.mark.parametrize(
    ("text", "url"),
    [
        ("http://127.0.0.1:8000", "http://127.0.0.1:8000"),
        ("http://127.0.0.1:8000/", "http://127.0.0.1:8000"),
        ("http://127.0.0.1:8000/v1", "http://127.0.0.1:8000"),
        ("https://host/llm/v1/", "https://host/llm"),
        ("https://host/v1beta", "https://host/v1beta"),
        ("http://[::1]:8000/v1", "http://[::1]:8000"),
        ("http://host/v1/chat/completions", "http://host"),
        ("http://host/v1/messages", "http://host/v1/messages"),
    ],
)
def test_a_base_url_may_end_in_v1_slash_and_the_path_of_its_protocol(text, url):
    assert base_url_from_text(text, "chat") == url


@pytest.mark.parametrize(
    "text",
    [
        "127.0.0.1:8000",
        "localhost",
        "ftp://host",
        "http://",
        "http://host:x",
        "http://host:0",
        "http://[::1",
        "http://a b",
        "http://host/\r\nX-A: 1",
        "http://hôst",
        "http://..",
        f"http://{'a' * 64}.example",
        "",
    ],
)
def test_what_is_no_http_url_is_refused(text):
    with pytest.raises(UsageError, match="expected one like http"):
        base_url_from_text(text, "chat")


@pytest.mark.parametrize(
    "text",
    [
        "https://me:hunter2@host/v1",
        "http://me:hunter2@host:99999999",
        "me:hunter2@host",
        "http://host?key=hunter2",
        "http://host#hunter2",
    ],
)
def test_credentials_in_a_url_are_refused_without_repeating_them(text):
    with pytest.raises(UsageError) as caught:
        base_url_from_text(text, "chat")
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize("text", ["http://host/v1?key=1", "http://host#top"])
def test_a_query_or_fragment_is_refused(text):
    with pytest.raises(UsageError, match="query or fragment"):
        base_url_from_text(text, "chat")


def test_the_url_of_a_page_may_have_a_query_but_no_credentials():
    assert check_page_url("http://host/metrics?name=a") == "http://host/metrics?name=a"
    for text in ("host/metrics", "http://me:hunter2@host/metrics", "http://host/metrics?token=hunter2"):
        with pytest.raises(UsageError) as caught:
            check_page_url(text)
        assert "hunter2" not in str(caught.value)


def test_the_next_step_after_tls_failed_is_about_certificates():
    assert "SSL_CERT_FILE" in unreachable("https://host", f"{TLS_FAILED}: not trusted").hint
    assert "Start the server" in unreachable("http://host", "Connection refused").hint


@pytest.mark.parametrize("said", ["no connection within 5 s", f"{TLS_FAILED}: wrong version number"])
def test_a_server_that_does_not_answer_tls_may_speak_plain_http(said):
    assert "plain HTTP (http://" in unreachable("https://host", said).hint


@pytest.mark.parametrize("kind", ["cut", "malformed"])
def test_a_server_that_gives_no_status_may_speak_tls(kind):
    error = unusable(URL, seen(None, error=kind, text="closed"), model="m", models=None)
    assert "TLS (https://" in error.hint


def test_each_protocol_carries_its_key_in_its_own_header():
    assert credential_headers("anthropic", "k") == {"anthropic-version": "2023-06-01", "x-api-key": "k"}
    assert credential_headers("chat", "k") == {"Authorization": "Bearer k"}
    assert credential_headers("responses", None) == {}
    assert credential_headers("anthropic", None) == {"anthropic-version": "2023-06-01"}


def test_an_endpoint_never_shows_its_key():
    headers = credential_headers("chat", "hunter2")
    endpoint = Endpoint(url="http://host", protocol="chat", headers=headers, key="hunter2")
    assert "hunter2" not in repr(endpoint)


@pytest.mark.parametrize(
    ("body", "models"),
    [
        (b'{"object":"list","data":[{"id":"a"},{"id":"b"}]}', ["a", "b"]),
        (b'{"data":[]}', []),
        (b'{"data":[{"name":"a"}]}', None),
        (b'{"data":[{"id":7}]}', None),
        (b'{"data":null}', None),
        (b"[]", None),
        (b"<html>", None),
    ],
)
def test_models_are_read_from_a_list_of_them_only(body, models):
    assert models_from_body(body) == models


def seen(status: int | None, body: bytes = b"", *, error=None, text=None, content_type="application/json"):
    observer = ResponseObserver(PROTOCOLS["chat"], streamed=True)
    if status is not None:
        observer.on_headers(status, {"content-type": content_type}, 1)
    observer.on_chunk(body, 2)
    return observer.on_end(3, error, text)


@pytest.mark.parametrize(
    ("observation", "message", "hint"),
    [
        (
            seen(None, error="connect", text="Connection refused"),
            "cannot be reached: Connection refused",
            "Start",
        ),
        (
            seen(None, error="timeout", text="nothing came for 9 s"),
            "gave no answer: nothing came",
            "--timeout",
        ),
        (seen(401, b'{"error":{"message":"no key"}}'), "answered with status 401: no key", "--api-key-env"),
        (seen(403), "answered with status 403", "--api-key-file"),
        (seen(404, b'{"error":{"message":"no such model"}}'), "status 404: no such model", "offers: m1, m2."),
        (seen(400, b'{"error":{"message":"bad"}}'), "answered with status 400: bad", "--protocol"),
        (seen(404, b"<html><body>Not Found</body></html>"), "status 404: an HTML page", "offers"),
        (seen(429, b'{"error":{"message":"full"}}'), "answered with status 429: full", "no room"),
        (
            seen(200, b"<html></html>", content_type="text/html"),
            "answered with status 200, but not as expected (malformed)",
            "Is --url the base of an LLM API",
        ),
        (
            seen(200, b'data: {"error":{"message":"boom"}}\n\n', content_type="text/event-stream"),
            "not as expected (error_event): boom",
            "its log may tell why",
        ),
        (
            seen(None, error="cut", text="closed"),
            "answered with no status, but not as expected (cut)",
            "Is --url",
        ),
    ],
)
def test_what_happened_and_the_next_step_are_told(observation, message, hint):
    error = unusable(URL, observation, model="mine", models=["m1", "m2"])
    assert str(error).startswith(URL)
    assert message in str(error)
    assert hint in (error.hint or "")
    assert error.exit_code == 4


def test_a_404_for_a_model_that_is_offered_points_at_the_url():
    error = unusable(URL, seen(404), model="m1", models=["m1"])
    assert "Is --url the base" in (error.hint or "")


def test_a_long_list_of_models_is_cut():
    error = unusable(URL, seen(404), model="mine", models=[f"m{n}" for n in range(9)])
    assert (error.hint or "").endswith("m0, m1, m2, m3, m4, ….")


def test_a_servers_words_are_shown_in_one_line():
    assert shown_text("a\n  b") == "a b"
    assert shown_text(None) == ""
    assert shown_text("a\x1b[31mb\x00c") == "a\ufffd[31mb\ufffdc"
    assert len(shown_text("x" * 999)) == 160
