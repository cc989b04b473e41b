"""Whose token a call sends back."""

from dataclasses import dataclass

import pytest

from aitrace.errors import UsageError
from aitrace.schema import Session
from replayer.identity.router_tokens import RouterTokens, token_header


@dataclass(frozen=True)
class Call:
    session: int = 0
    instance: int = 1
    root: int = 0


SESSIONS = (
    Session(id=0, root=0),
    Session(id=1, root=0, parent=0),
    Session(id=2, root=0, parent=1),
)


def tokens(name="X-Session-Token") -> RouterTokens:
    return RouterTokens(name, SESSIONS)


def test_the_first_call_has_none_and_later_ones_send_the_latest():
    kept = tokens()
    assert kept.headers(Call()) == {}
    for token in ("a", "b"):
        kept.note(Call(), {"x-session-token": token})
    assert kept.headers(Call()) == {"X-Session-Token": "b"}


def test_a_session_without_its_own_sends_that_of_its_nearest_ancestor():
    kept = tokens()
    kept.note(Call(), {"x-session-token": "root"})
    assert kept.headers(Call(session=2)) == {"X-Session-Token": "root"}
    kept.note(Call(session=1), {"x-session-token": "child"})
    assert kept.headers(Call(session=2)) == {"X-Session-Token": "child"}
    assert kept.headers(Call()) == {"X-Session-Token": "root"}


def test_another_playing_of_the_tree_has_tokens_of_its_own():
    kept = tokens()
    kept.note(Call(), {"x-session-token": "a"})
    assert kept.headers(Call(instance=2)) == {}


def test_a_tree_that_is_over_is_forgotten():
    kept = tokens()
    kept.note(Call(), {"x-session-token": "a"})
    kept.forget_tree(0, 1)
    kept.forget_tree(0, 1)
    assert kept.headers(Call()) == {}


@pytest.mark.parametrize("value", ["", "a\r\nX-Evil: 1", " a", "é", "x" * 5000, 5, None])
def test_a_value_that_no_request_could_carry_is_passed_over(value):
    kept = tokens()
    kept.note(Call(), {"x-session-token": value})
    assert kept.headers(Call()) == {}


@pytest.mark.parametrize("name", ["", "x token", "x:y", "Authorization", "cookie", "Content-Length"])
def test_a_name_that_is_none_or_a_credentials_is_wrong_use(name):
    with pytest.raises(UsageError, match="router token"):
        token_header(name)


def test_a_name_keeps_its_case():
    assert token_header("X-Session-Token") == "X-Session-Token"
