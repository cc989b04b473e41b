"""Pure: who is calling: one detector per harness."""

from dataclasses import replace

from aitrace.harnesses.claude_code import ClaudeCode
from aitrace.harnesses.codex import Codex
from aitrace.harnesses.detector import Detector, Identity, RequestFacts
from aitrace.harnesses.dynamo import with_dynamo_ids
from aitrace.harnesses.generic import generic_identity
from aitrace.harnesses.opencode import OpenCode
from aitrace.harnesses.routes import recorded_route
from aitrace.harnesses.tools import AGENT_TOOLS, SPAWN_TOOLS, WAIT_TOOLS, AgentTool

DETECTORS: tuple[Detector, ...] = (ClaudeCode(), Codex(), OpenCode())

__all__ = ["AGENT_TOOLS", "DETECTORS", "SPAWN_TOOLS", "WAIT_TOOLS", "AgentTool", "identify"]


def identify(facts: RequestFacts) -> tuple[Detector | None, Identity]:
    """Who a request comes from, and the detector that knows it; None and a weaker identity if none does."""
    detector, identity = _first_identity(facts)
    identity = with_dynamo_ids(facts.headers, identity)
    route = recorded_route("POST", facts.path)
    if route is not None and route.is_count_tokens:
        identity = replace(identity, call_class="count_tokens")
    return detector, identity


def _first_identity(facts: RequestFacts) -> tuple[Detector | None, Identity]:
    for detector in DETECTORS:
        identity = detector.identify(facts)
        if identity is not None:
            return detector, identity
    return None, generic_identity(facts)
