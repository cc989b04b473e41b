import pytest

from aitrace.errors import UsageError
from recorders.addresses import (
    ConnectTo,
    Upstream,
    UserProxy,
    connect_to_from_text,
    place_text,
    proxy_from_environment,
    upstream_from_text,
)


@pytest.mark.parametrize(
    ("text", "scheme", "host", "port", "path", "origin"),
    [
        ("http://127.0.0.1:8000", "http", "127.0.0.1", 8000, "", "http://127.0.0.1:8000"),
        ("https://host.example/llm/v1/", "https", "host.example", 443, "/llm/v1", "https://host.example:443"),
        ("http://[::1]:80/", "http", "::1", 80, "", "http://[::1]:80"),
        ("http://host", "http", "host", 80, "", "http://host:80"),
    ],
)
def test_an_upstream_is_read(text, scheme, host, port, path, origin):
    upstream = upstream_from_text(text)
    assert upstream == Upstream(scheme=scheme, host=host, port=port, path=path)
    assert upstream.origin == origin


@pytest.mark.parametrize(
    "text", ["", "127.0.0.1:8000", "localhost", "ftp://host", "http://", "http://host:0", "http://host:x"]
)
def test_what_is_no_url_is_refused_with_the_text(text):
    with pytest.raises(UsageError, match="cannot be read") as caught:
        upstream_from_text(text)
    assert repr(text) in str(caught.value)


@pytest.mark.parametrize("text", ["http://me:pw@host", "http://host?a=1", "http://host#x"])
def test_an_upstream_with_more_than_a_path_is_refused_without_showing_it(text):
    with pytest.raises(UsageError, match="credentials, a query or a fragment") as caught:
        upstream_from_text(text)
    assert "pw" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("api.example.com:443=127.0.0.1:8443", ("api.example.com", 443, "127.0.0.1", 8443)),
        ("API.example.com:443:127.0.0.1:8443", ("api.example.com", 443, "127.0.0.1", 8443)),
        ("h:1=[::1]:2", ("h", 1, "::1", 2)),
        ("[::2]:1:h:2", ("::2", 1, "h", 2)),
    ],
)
def test_another_place_to_connect_to_is_read(text, expected):
    host, port, to_host, to_port = expected
    assert connect_to_from_text(text) == ConnectTo(host=host, port=port, to_host=to_host, to_port=to_port)


@pytest.mark.parametrize("text", ["", "a=b", "a:1=b", "a=b:1", "a:x=b:1", "a:1=b:1=c:1"])
def test_what_is_no_such_place_is_refused(text):
    with pytest.raises(UsageError, match="expected HOST:PORT=ADDR:PORT"):
        connect_to_from_text(text)


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({}, None),
        ({"HTTPS_PROXY": ""}, None),
        ({"HTTPS_PROXY": "http://proxy:3128"}, ("http", "proxy", 3128, None, "HTTPS_PROXY")),
        ({"https_proxy": "proxy:3128"}, ("http", "proxy", 3128, None, "https_proxy")),
        ({"HTTP_PROXY": "http://a", "HTTPS_PROXY": "http://b"}, ("http", "b", 80, None, "HTTPS_PROXY")),
        ({"ALL_PROXY": "https://p"}, ("https", "p", 443, None, "ALL_PROXY")),
        ({"HTTP_PROXY": "http://me:p%40ss@p:1"}, ("http", "p", 1, "me:p@ss", "HTTP_PROXY")),
    ],
)
def test_the_users_proxy_is_the_one_for_https(environ, expected):
    proxy = proxy_from_environment(environ)
    found = (
        None if proxy is None else (proxy.scheme, proxy.host, proxy.port, proxy.credentials, proxy.variable)
    )
    assert found == expected


@pytest.mark.parametrize("text", ["socks5://me:secret@p:1", "http://me:secret@p:x", "http://"])
def test_a_proxy_that_cannot_be_used_is_refused_without_its_credentials(text):
    with pytest.raises(UsageError, match="HTTPS_PROXY names a proxy") as caught:
        proxy_from_environment({"HTTPS_PROXY": text})
    assert "secret" not in str(caught.value) + str(caught.value.hint)


def test_credentials_are_not_shown():
    proxy = UserProxy(scheme="http", host="p", port=1, credentials="me:secret", variable="HTTPS_PROXY")
    assert "secret" not in repr(proxy)


def test_a_place_has_an_ipv6_address_in_brackets():
    assert place_text("host", 80) == "host:80"
    assert place_text("::1", 80) == "[::1]:80"
