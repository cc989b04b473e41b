import pytest

from recorders.no_proxy import (
    entries_for_client,
    entries_from_environment,
    entries_from_text,
    is_covered,
    is_loopback,
)


@pytest.mark.parametrize(
    ("text", "entries"),
    [(None, ()), ("", ()), ("a", ("a",)), ("a, b,,c", ("a", "b", "c")), (" .x.example ", (".x.example",))],
)
def test_entries_are_what_stands_between_commas_and_spaces(text, entries):
    assert entries_from_text(text) == entries


@pytest.mark.parametrize(
    ("host", "entry"),
    [
        ("api.example", "*"),
        ("api.example", "api.example"),
        ("API.example", "api.EXAMPLE"),
        ("api.example", "example"),
        ("api.example", ".example"),
        ("api.example", "*.example"),
        ("api.example", "api.example:443"),
        ("10.1.2.3", "10.1.2.3"),
        ("10.1.2.3", "10.1.2.3:8000"),
        ("10.1.2.3", "10.0.0.0/8"),
        ("::1", "::1"),
        ("[::1]", "[::1]:80"),
    ],
)
def test_an_entry_covers_the_host(host, entry):
    assert is_covered(host, ["other.example", entry])


@pytest.mark.parametrize(
    ("host", "entry"),
    [
        ("api.example", "pi.example"),
        ("example", "api.example"),
        ("api.example", "."),
        ("api.example", "10.0.0.0/8"),
        ("10.1.2.3", "11.0.0.0/8"),
        ("10.1.2.3", "example"),
        ("10.1.2.3", "::1"),
    ],
)
def test_an_entry_does_not_cover_the_host(host, entry):
    assert not is_covered(host, [entry])


@pytest.mark.parametrize(
    ("host", "here"),
    [
        ("localhost", True),
        ("LocalHost", True),
        ("a.localhost", True),
        ("127.0.0.9", True),
        ("[::1]", True),
        ("10.0.0.1", False),
        ("localhost.example", False),
    ],
)
def test_loopback_is_this_machine_by_name_or_address(host, here):
    assert is_loopback(host) == here


def test_a_client_keeps_the_users_entries_and_gets_loopback():
    assert entries_for_client(["corp.example"], ["api.example"]) == (
        ("corp.example", "localhost", "127.0.0.1", "::1"),
        [],
    )


def test_what_covers_an_endpoint_is_left_out_and_told():
    kept, left_out = entries_for_client(["*", ".corp.example", "b.example"], ["llm.corp.example"])
    assert kept == ("b.example", "localhost", "127.0.0.1", "::1")
    assert left_out == ["*", ".corp.example"]


@pytest.mark.parametrize("endpoint", ["127.0.0.1", "localhost", "::1"])
def test_an_endpoint_on_this_machine_takes_all_names_of_it_out(endpoint):
    """The client may resolve the name before it looks at the list."""
    kept, left_out = entries_for_client(["localhost", "127.0.0.0/8", "10.0.0.0/8"], [endpoint])
    assert kept == ("10.0.0.0/8",)
    assert left_out == ["localhost", "127.0.0.0/8"]


def test_the_environments_list_is_read_under_either_name():
    assert entries_from_environment({"no_proxy": "a,b"}) == ("a", "b")
    assert entries_from_environment({"NO_PROXY": "c", "no_proxy": "a"}) == ("c",)
    assert entries_from_environment({}) == ()
