"""Pure: the sentences in which importers say what their source could not tell.

They are a closed list, so that `aitrace check --no-text` can tell them from anybody's prose. `{}` stands for a
number. A sentence that was in a release stays here when no importer writes it any longer: old traces hold it.
"""

import re
from enum import StrEnum


class Unknown(StrEnum):
    """What a source may not tell."""

    TAILS = "what the tokens after the last block of a prompt are: they are not shared with any other prompt"
    RESOLUTION = "times of calls finer than {} s"
    CUTS_BY_SIZES = (
        "where messages end: prompts are cut at block boundaries, by the sizes of tools, system prompt and answers that "
        "the source gives"
    )
    CUTS_BY_ANSWERS = (
        "where messages end: the answer's size is known, what is new around it counts as the user's text"
    )
    TIME_BETWEEN_TREES = "the time between conversations: each counts from its own start"
    SHARING_BETWEEN_TREES = "whether two conversations share blocks: ids are local to a conversation"
    WIRE = "wire protocol, HTTP status, retries, and limits on the answer's length"
    WIRE_AND_MODEL = (
        "model, harness, wire protocol, HTTP status, retries, tools, and whether answers were streamed"
    )
    TOOLS = "how many tools a call used, and how long they ran"
    TREE_SHAPE = (
        "which sub-agent started which: they are listed flat, and taken for children of the main agent; start and join "
        "are derived from times"
    )
    STARTS = (
        "the start of sub-agents in {} of {} conversations: the time given is that of their result, the start is taken "
        "to be their duration earlier"
    )
    SESSIONS = "sessions: they are inferred from prompts that extend earlier ones, see docs/convert.md"
    AGENTS = "agents: every inferred session is a root"
    DURATIONS = "how long calls took: gaps are from start to start, and what filled them is not known"
    ENDS = "end of {} of {} calls"
    FIRST_TOKENS = "first token of {} of {} calls"
    INPUT_TYPES = "input types of {} of {} calls"
    OUTPUT_TYPES = "output types of {} of {} calls"
    MODELS = "model of {} of {} calls"
    ANSWER_SIZES = "size of the answer of {} of {} calls"
    HISTORY = "what was on the wire: this is taken from the harness's own history of conversations"
    REQUEST_TIMES = (
        "start of {} of {} calls: it is taken to be when the last input before the answer was noted"
    )
    ANSWER_ENDS = "the end of answers: it is taken to be when the last piece of the answer was noted"
    HEADS = "system prompt and tool definitions of {} of {} calls"
    OUTPUT_LIMITS = "limit on the answer's length of {} of {} calls"
    HISTORY_WIRE = "HTTP status of answers, whether they were streamed, and connections"
    RETRIES = "refused attempts: the history does not hold them, a call counts from its first attempt"
    SIDE_CALLS = "calls beside the conversation, such as those for titles, and what a history does not keep of compaction"


_SENTENCES = frozenset(Unknown)
_NUMBER = re.compile(r"[0-9]{1,20}(\.[0-9]{1,20})?(e-?[0-9]{1,2})?")


def is_unknown_sentence(text: str) -> bool:
    """Whether this is one of the sentences, with any numbers in it."""
    return _NUMBER.sub("{}", text) in _SENTENCES
