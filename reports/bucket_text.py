"""Pure: names of buckets of calls and of parts of sessions' time, as people read them."""

from reports.metric import Row
from reports.words import gap_label

CLASS_WORDS = {
    "main": "main agent",
    "subagent": "sub-agent",
    "workflow": "workflow",
    "compaction": "compaction",
    "auxiliary": "side call",
    "count_tokens": "counting of tokens",
    "unknown": "class not known",
}
"""Classes of calls."""
PART_WORDS = {
    "prefill": "to the first token",
    "decode": "first token to end",
    "tool_gap": "tool gap",
    "user_gap": "user gap",
    "other_gap": "other gap",
    "agents": "waiting for other agents",
    "backoff": "backoff",
    "failed_tries": "earlier tries",
    "lateness": "client, late",
}
"""Parts of a session's time, see `reports.measures.session_shares.PARTS`."""
CAUSE_WORDS = {
    "tool": "tool",
    "user": "user",
    "harness": "harness",
    "backoff": "backoff in the recording",
    "unknown": "not known",
}
"""What filled a gap."""
_START_WORDS = {"agent_start": "first call of a sub-agent", "tree_start": "first call of a tree"}


def range_label(row: Row, name: str) -> str:
    """A bucket of whole numbers: `3`, `1,000 – 2,999`, `50 and over`."""
    first, last = row[f"{name}_from"], row[f"{name}_to"]
    if last is None:
        return f"{first:,} and over"
    return f"{first:,}" if first == last else f"{first:,} – {last:,}"


def turn_label(row: Row) -> str:
    """A bucket of places within a session: `call 0`, `call 2 – 4`, `call 50 and over`; the first call is call 0."""
    return f"call {range_label(row, 'turn')}"


def class_label(row: Row) -> str:
    """The class of a row."""
    return CLASS_WORDS.get(str(row["call_class"]), str(row["call_class"]))


def gap_before_label(row: Row) -> str:
    """The gap of a row, or which first call it is of."""
    start = _START_WORDS.get(str(row["kind"]))
    return gap_label(row["gap_from_s"], row["gap_to_s"]) if start is None else start
