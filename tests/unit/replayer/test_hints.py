import orjson
import pytest

from aitrace.errors import AitraceError, UsageError
from replayer.identity.hints import hinted_body, hinted_headers, hints_from_json, json_from_hints, laid_over

FACTS = {"harness": "codex", "class": "main", "agent": None}


def rules(*content):
    return hints_from_json(orjson.dumps(list(content)), place="hints.json")


def fill(text):
    return None if "{parent}" in text else text.replace("{session}", "s1")


def test_fields_of_all_rules_that_hold_are_laid_over_one_another():
    read = rules(
        {"body": {"nvext": {"agent_hints": {"priority": 1}, "extra_fields": ["worker_id"]}, "priority": 1}},
        {
            "where": {"class": ["main", "compaction"]},
            "body": {"nvext": {"agent_hints": {"osl": 9}}, "priority": 2},
        },
        {"where": {"class": "subagent"}, "body": {"priority": 3}},
    )
    assert hinted_body(read, FACTS, fill) == {
        "nvext": {"agent_hints": {"priority": 1, "osl": 9}, "extra_fields": ["worker_id"]},
        "priority": 2,
    }


@pytest.mark.parametrize(
    ("where", "holds"),
    [
        ({}, True),
        ({"harness": "codex"}, True),
        ({"harness": ["opencode", "codex"], "class": "main"}, True),
        ({"harness": "codex", "class": "subagent"}, False),
        ({"agent": "Explore"}, False),
    ],
)
def test_a_rule_is_for_calls_that_meet_all_it_names(where, holds):
    assert bool(hinted_body(rules({"where": where, "body": {"a": 1}}), FACTS, fill)) is holds


def test_ids_are_put_into_texts_at_any_depth_and_what_has_none_is_left_out():
    read = rules(
        {"body": {"a": {"b": ["{session}", "{parent}", 1], "c": "{parent}"}, "d": "x{session}", "e": None}}
    )
    assert hinted_body(read, FACTS, fill) == {"a": {"b": ["s1", 1]}, "d": "xs1", "e": None}


def test_headers_are_templates_too():
    read = rules(
        {"headers": {"X-A": "{session}", "X-B": "{parent}", "X-C": "low"}}, {"headers": {"X-C": "high"}}
    )
    assert hinted_headers(read, FACTS, fill) == {"X-A": "s1", "X-C": "high"}
    assert (
        hinted_headers(rules({"where": {"class": "auxiliary"}, "headers": {"X-A": "1"}}), FACTS, fill) == {}
    )


def test_a_run_keeps_hints_by_content():
    content = [{"where": {"class": ["main"]}, "body": {"priority": 1}, "headers": {"X-A": "{session}"}}]
    assert json_from_hints(rules(*content)) == content
    assert json_from_hints(rules({"where": {"class": "main"}, "body": {"a": 1}}))[0]["where"] == {
        "class": ["main"]
    }


def test_a_run_keeps_no_header_whose_value_may_be_a_secret():
    kept = json_from_hints(rules({"headers": {"X-A": "{root}", "X-B": "secret-word"}}))
    assert kept[0]["headers"] == {"X-A": "{root}", "X-B": "(not kept)"}


@pytest.mark.parametrize("name", ["Authorization", "Content-Length"])
def test_a_header_that_is_refused_names_its_rule(name):
    with pytest.raises(UsageError, match=f"rule 1: headers: header '{name}'"):
        rules({"headers": {name: "secret-word"}})


def test_what_is_no_object_replaces_and_is_replaced():
    assert laid_over({"a": {"b": 1}, "c": 2}, {"a": 3, "c": {"d": 4}}) == {"a": 3, "c": {"d": 4}}


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"{}", b"7", b"[7]", b"[{}]", b'[{"where": {"class": "main"}}]', b'[{"body": [], "headers": {"X-A": "1"}}]',
     b'[{"bodies": {"a": 1}}]', b'[{"where": {"kind": "main"}, "body": {"a": 1}}]', b'[{"where": [], "body": {"a": 1}}]',
     b'[{"where": {"class": "mine"}, "body": {"a": 1}}]', b'[{"where": {"agent": []}, "body": {"a": 1}}]',
     b'[{"where": {"agent": [7]}, "body": {"a": 1}}]', b'[{"headers": {"X-A": 1}}]', b'[{"headers": ["X-A"]}]',
     b'[{"headers": {"X A": "1"}}]', b'[{"headers": {"X-A": "{user}"}}]', b'[{"body": {"a": [{"b": "{user}"}]}}]'],
)  # fmt: skip
def test_what_is_no_list_of_rules_is_refused(content):
    with pytest.raises(AitraceError):
        hints_from_json(content, place="hints.json")


@pytest.mark.parametrize(
    ("rule", "text"),
    [
        ({"headers": {"Authorization": "Bearer x"}}, "credential"),
        ({"body": {"nvext": [{"API_Key": "x"}]}}, "credential"),
        ({"body": {"messages": []}}, "is written by the replay"),
        ({"body": {"max_tokens": 1}}, "is written by the replay"),
    ],
)
def test_credentials_and_what_the_replay_writes_are_refused(rule, text):
    with pytest.raises(AitraceError, match=text):
        rules(rule)
