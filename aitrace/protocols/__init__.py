"""Pure: the wire protocols that aitrace speaks."""

from aitrace.protocols.anthropic import AnthropicProtocol
from aitrace.protocols.chat import ChatProtocol
from aitrace.protocols.protocol import WireProtocol
from aitrace.protocols.responses import ResponsesProtocol
from aitrace.schema import ProtocolName

PROTOCOLS: dict[ProtocolName, WireProtocol] = {
    "anthropic": AnthropicProtocol(),
    "responses": ResponsesProtocol(),
    "chat": ChatProtocol(),
}

PARTS_RULES = ("anthropic/cache-control", "anthropic/ids", "chat/ids", "responses/ids")
"""What `read_request` leaves out of every prompt, by names for a trace's header: marks of what to cache, and the ids
and states of items and tool calls, which no model sees."""

# Codex with a ChatGPT login posts to `/backend-api/codex/responses`: only the vendor of Messages always says `/v1`.
_PATH_ENDS: dict[str, ProtocolName] = {
    "/v1/messages": "anthropic",
    "/responses": "responses",
    "/chat/completions": "chat",
}


def protocol_for_path(path: str) -> WireProtocol | None:
    """The protocol of generation requests to this path, whatever its prefix and query; None for any other route."""
    route = path.partition("?")[0].rstrip("/")
    for end, name in _PATH_ENDS.items():
        if route.endswith(end):
            return PROTOCOLS[name]
    return None
