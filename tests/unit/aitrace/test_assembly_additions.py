from aitrace.assembly.additions import Addition, History
from aitrace.protocols.protocol import RequestPart


class Chain:
    """A chain of prompts; a part is written `kind:text`, and equal parts are equal segments."""

    def __init__(self):
        self._history = History()
        self._segments = {}

    def add(self, *texts, typed=None, unseen_start=False, is_kept=True):
        parts = [part(text) for text in texts]
        segments = [self._segments.setdefault(text, len(self._segments)) for text in texts]
        return self._history.add(parts, segments, typed=typed, unseen_start=unseen_start, is_kept=is_kept)


def part(written):
    kind, _, text = written.partition(":")
    match kind:
        case "tools":
            return RequestPart(role="system", type="tool_definition", text=text)
        case "sys":
            return RequestPart(role="system", type="system", text=text)
        case "ask":
            return RequestPart(role="user", type="text", text=text)
        case "say":
            return RequestPart(role="assistant", type="text", text=text)
        case "use":
            return RequestPart(role="assistant", type="tool_use", text=text, tool_id=text, tool_name="Bash")
        case "got":
            return RequestPart(role="tool", type="tool_result", text=text, tool_id=text or None)
        case "note":
            return RequestPart(role="user", type="opaque", text=text)
    raise AssertionError(kind)


NOTHING = Addition(is_replaced=False, results=(), tool_uses=(), has_typed=False, has_announcement=False)


def test_the_first_prompt_adds_what_the_person_typed():
    assert Chain().add("sys:s", "ask:hello") == Addition(
        is_replaced=None, results=(), tool_uses=(), has_typed=True, has_announcement=False
    )


def test_a_chain_that_is_first_seen_in_its_middle_adds_what_follows_the_last_answer():
    added = Chain().add("ask:a", "use:1", "got:1", "use:2", "got:2")
    assert (added.results, added.tool_uses, added.has_typed) == (("2",), (), False)


def test_a_history_that_goes_on_adds_what_follows_the_old_one():
    chain = Chain()
    chain.add("sys:s", "ask:a")
    added = chain.add("sys:s", "ask:a", "say:x", "use:1", "got:1", "use:2", "got:2")
    assert added == Addition(
        is_replaced=False,
        results=("1", "2"),
        tool_uses=(("1", "Bash"), ("2", "Bash")),
        has_typed=False,
        has_announcement=False,
    )


def test_the_same_words_typed_again_are_new():
    chain = Chain()
    chain.add("ask:go")
    assert chain.add("ask:go", "say:x", "ask:go").has_typed is True


def test_results_without_ids_are_counted_by_place():
    chain = Chain()
    chain.add("ask:a")
    assert chain.add("ask:a", "use:1", "got:", "got:").results == (None, None)


def test_text_that_was_not_typed_is_an_announcement():
    chain = Chain()
    chain.add("ask:reminder", "ask:go", typed=(1,))
    added = chain.add("ask:reminder", "ask:go", "say:x", "ask:agent done", typed=(1, 99))
    assert (added.has_typed, added.has_announcement) == (False, True)
    assert chain.add(
        "ask:reminder", "ask:go", "say:x", "ask:agent done", "say:y", "note:agent", typed=()
    ).has_announcement


def test_other_tools_and_another_system_prompt_replace_no_history():
    chain = Chain()
    chain.add("tools:a", "sys:monday", "ask:a")
    added = chain.add("tools:a", "tools:b", "sys:tuesday", "ask:a", "use:1", "got:1")
    assert (added.is_replaced, added.results) == (False, ("1",))


def test_a_prompt_of_tools_and_system_alone_has_an_empty_history():
    chain = Chain()
    chain.add("tools:a", "sys:s")
    assert chain.add("tools:b", "sys:s", "ask:a").has_typed is True


def test_another_history_replaces_the_old_one_and_what_it_keeps_is_not_new():
    chain = Chain()
    chain.add("sys:s", "ask:a")
    chain.add("sys:s", "ask:a", "use:1", "got:1")
    added = chain.add("sys:s", "ask:summary", "use:1", "got:1", "ask:a")
    assert (added.is_replaced, added.results, added.has_typed) == (True, (), False)


def test_a_prompt_typed_after_a_replaced_history_is_new():
    chain = Chain()
    chain.add("ask:a")
    chain.add("ask:a", "say:x", "ask:go")
    assert chain.add("ask:summary", "say:y", "ask:b").has_typed is True
    assert chain.add("note:resumed", "ask:go", "say:z", "ask:go").has_typed is True


def test_a_prompt_asked_aside_leaves_the_history_but_its_results_are_seen():
    chain = Chain()
    chain.add("ask:a")
    assert chain.add("ask:a", "use:1", "got:1", "ask:sum up", is_kept=False).results == ("1",)
    added = chain.add("ask:a", "use:1", "got:1")
    assert (added.is_replaced, added.results) == (False, ())


def test_of_a_history_whose_start_was_not_seen_nobody_can_tell_whether_it_was_replaced():
    chain = Chain()
    chain.add("ask:a")
    tail = chain.add("got:1", "ask:b", unseen_start=True)
    assert (tail.is_replaced, tail.results, tail.has_typed) == (None, ("1",), True)
    assert chain.add("got:1", "ask:b", "say:x", unseen_start=True).is_replaced is False
    assert chain.add("ask:a", "use:1", "got:1", "ask:b", "say:x", "got:2").is_replaced is None
    assert chain.add("ask:summary").is_replaced is True


def test_the_same_prompt_again_adds_nothing():
    chain = Chain()
    chain.add("ask:a", "use:1", "got:1")
    assert chain.add("ask:a", "use:1", "got:1") == NOTHING
