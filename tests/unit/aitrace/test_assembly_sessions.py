import pytest

from aitrace.assembly.keyed_names import KeyedNames
from aitrace.assembly.prefix_tree import PrefixTree
from aitrace.assembly.sessions import CallState, Sessions, SessionState, TreeState
from aitrace.harnesses.detector import Identity
from aitrace.protocols.protocol import RequestPart
from aitrace.schema import Session


def part(text, role="user"):
    return RequestPart(role=role, type="system" if role == "system" else "text", text=text)


class World:
    """Sessions with prompts written as words: `s…` is a system prompt, `a…` an answer, any other the user's."""

    def __init__(self):
        self.names = KeyedNames(b"key")
        self.prompts = PrefixTree()
        self.sessions = Sessions(self.names, self.prompts)
        self.words = {}
        self.calls = 0

    def ask(self, words, scope="", *, error=None, has_ended=True):
        """Session id of an inferred call, which is then the last of its session."""
        roles = {"s": "system", "a": "assistant"}
        parts = tuple(part(word, roles.get(word[0], "user")) for word in words.split())
        segments = [self.words.setdefault(word, len(self.words)) for word in words.split()]
        node = self.prompts.insert(segments, self.calls).node
        session, lines = self.sessions.inferred(Identity(), scope, node, parts)
        self.sessions.move_tip(session, scope, node, parts)
        session.last = call_state(session, self.calls, has_ended=has_ended, error=error)
        self.calls += 1
        assert [line.id for line in lines] in ([], [session.id])
        return session.id


def call_state(session, number, **fields):
    return CallState(
        id=number,
        session=session,
        call_class="main",
        node=0,
        request_ns=0,
        streamed=True,
        turn=None,
        window=0,
        attempt=1,
        tool_results=0,
        **fields,
    )


def named(sessions, key, **fields):
    return sessions.named(Identity(session=key, **fields), key)


def test_a_session_has_what_the_harness_says():
    world = World()
    session, lines = named(
        world.sessions, "one", root="one", harness="codex", version="1.2", agent="Explore", evidence=("a/b",)
    )
    assert lines == [
        Session(id=0, root=0, harness="codex", harness_version="1.2", agent="Explore", evidence=("a/b",))
    ]
    assert named(world.sessions, "one") == (session, [])
    assert world.names.raw == {"one"}


def test_a_made_up_kind_of_agent_is_hashed():
    world = World()
    _, (line,) = named(world.sessions, "one", agent="acme-payroll")
    assert len(line.agent) == 16
    assert "acme-payroll" in world.names.raw


def test_a_parent_that_was_not_seen_yet_is_made_up_first():
    world = World()
    child, lines = named(world.sessions, "c", parent="p", root="r", harness="codex", agent="worker")
    assert [(line.id, line.parent, line.root, line.agent) for line in lines] == [
        (0, None, 0, None),
        (1, 0, 0, None),
        (2, 1, 0, "worker"),
    ]
    assert [line.evidence for line in lines] == [("inferred/child",), ("inferred/child",), ()]
    parent, more = named(world.sessions, "p", parent="r", root="r")
    assert (child.parent, more) == (parent, [])


def test_a_child_without_a_named_parent_is_the_roots():
    _, lines = named(World().sessions, "c", root="r")
    assert [(line.id, line.parent) for line in lines] == [(0, None), (1, 0)]


def test_a_known_parent_tells_the_tree():
    world = World()
    parent, _ = named(world.sessions, "p")
    child, lines = named(world.sessions, "c", parent="p", root="elsewhere")
    assert (child.parent, [line.root for line in lines]) == (parent, [0])


@pytest.mark.parametrize("fields", [{"parent": "one"}, {"root": "one"}, {"parent": "one", "root": "one"}])
def test_a_session_is_not_its_own_parent(fields):
    session, lines = named(World().sessions, "one", **fields)
    assert (session.parent, len(lines)) == (None, 1)


def test_a_prompt_that_extends_the_last_one_is_of_its_session():
    world = World()
    assert [world.ask("s1 hi"), world.ask("s1 hi a1 more"), world.ask("s1 hi a1 more a2 again")] == [0, 0, 0]


def test_inferred_sessions_say_so():
    world = World()
    _, (line,) = world.sessions.inferred(Identity(evidence=("a/b",)), "", 0, ())
    assert line.evidence == ("a/b", "inferred/prefix")


def test_only_the_last_prompt_is_continued():
    world = World()
    assert [world.ask("hi"), world.ask("hi a1 more"), world.ask("hi a2 other")] == [0, 0, 1]


def test_another_scope_is_another_session():
    world = World()
    assert [world.ask("hi", "one"), world.ask("hi a1 more", "two"), world.ask("hi a1 x", "one")] == [0, 1, 0]


def test_a_shared_system_prompt_is_no_session():
    world = World()
    assert [world.ask("s1 s2"), world.ask("s1 s2 hi"), world.ask("s1 s2 ho")] == [0, 1, 2]


def test_the_same_prompt_is_another_session_unless_the_first_failed():
    world = World()
    assert [world.ask("hi"), world.ask("hi", error="refused"), world.ask("hi")] == [0, 1, 1]


def test_two_sessions_with_one_prompt_are_continued_one_each():
    world = World()
    assert [world.ask("hi"), world.ask("hi")] == [0, 1]
    assert [world.ask("hi a1 more"), world.ask("hi a2 other")] == [0, 1]


def test_a_call_in_flight_is_continued_only_by_a_prompt_that_holds_an_answer():
    world = World()
    assert world.ask("hi", has_ended=False) == 0
    assert world.ask("hi more") == 1
    assert world.ask("hi a1 more") == 0


def test_the_latest_call_of_a_session_is_of_any_kind():
    session = SessionState(id=0, parent=None, tree=TreeState(root=0))
    assert session.latest is None
    session.last_aside = call_state(session, 0)
    assert session.latest.id == 0
    session.last = call_state(session, 1)
    assert session.latest.id == 1
    session.last_aside = call_state(session, 2)
    assert session.latest.id == 2


def test_a_call_has_ended_by_a_time_if_its_end_is_told_and_not_later():
    session = SessionState(id=0, parent=None, tree=TreeState(root=0))
    assert call_state(session, 0).has_ended_by(9) is False
    assert call_state(session, 0, has_ended=True).has_ended_by(9) is True
    assert call_state(session, 0, has_ended=True, end_ns=9).has_ended_by(9) is True
    assert call_state(session, 0, has_ended=True, end_ns=10).has_ended_by(9) is False
