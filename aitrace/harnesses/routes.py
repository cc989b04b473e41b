"""Pure: which requests are recorded, and which of their headers a recorder may keep.

Recorded: POST /v1/messages?beta=true, POST /backend-api/codex/responses, GET /v1/responses (opens a WebSocket).
Not: GET /v1/models, HEAD /api/hello, POST /api/event_logging/v2/batch; their bodies hold device ids.
"""

from dataclasses import dataclass

from aitrace.protocols import protocol_for_path
from aitrace.schema import ProtocolName

_COUNT_TOKENS = "/v1/messages/count_tokens"
_COMPACT = "/responses/compact"

REQUEST_HEADERS = frozenset(
    {
        "content-encoding",
        "content-type",
        "user-agent",
        # Claude Code
        "x-cc-compaction-request",
        "x-cc-context-compacted",
        "x-claude-1p-request-class",
        "x-claude-code-agent-id",
        "x-claude-code-agent-type",
        "x-claude-code-compaction",
        "x-claude-code-context-compacted",
        "x-claude-code-parent-agent-id",
        "x-claude-code-prev-tool-durations",
        "x-claude-code-prompt-id",
        "x-claude-code-request-class",
        "x-claude-code-session-id",
        # Codex
        "conversation_id",
        "originator",
        "session-id",
        "session_id",
        "thread-id",
        "thread_id",
        "version",
        "x-codex-parent-thread-id",
        "x-codex-thread-id",
        # Holds paths and git remotes: a detector reads a few of its fields, and nobody writes it.
        "x-codex-turn-metadata",
        "x-codex-window-id",
        "x-openai-subagent",
        # OpenCode
        "x-opencode-client",
        "x-opencode-request",
        "x-opencode-session",
        "x-parent-session-id",
        "x-session-affinity",
        "x-session-id",
        # Dynamo
        "x-dynamo-parent-session-id",
        "x-dynamo-session-final",
        "x-dynamo-session-id",
    }
)
"""Request headers that leave the proxy for the writer, which reads them and writes none as it came."""
RESPONSE_HEADERS = frozenset({"content-encoding", "content-type", "date", "retry-after", "retry-after-ms"})
"""Response headers that leave the proxy for the writer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """A route whose requests are recorded."""

    protocol: ProtocolName
    """Wire protocol of its bodies, or of the messages of the WebSocket it opens."""
    is_count_tokens: bool = False
    """Whether it only counts the tokens of a prompt: nothing is generated."""
    is_compaction: bool = False
    """Whether it answers with a shorter history (`/responses/compact`)."""


def recorded_route(method: str, path: str) -> Route | None:
    """The route of a generation request, whatever its prefix and query; None for a request that is not recorded."""
    route = path.partition("?")[0].rstrip("/")
    protocol = protocol_for_path(route)
    if method == "GET":
        # The Responses API has no other GET on this path: it opens a WebSocket.
        is_socket = protocol is not None and protocol.name == "responses"
        return Route(protocol="responses") if is_socket else None
    if method != "POST":
        return None
    if protocol is not None:
        return Route(protocol=protocol.name)
    if route.endswith(_COUNT_TOKENS):
        return Route(protocol="anthropic", is_count_tokens=True)
    return Route(protocol="responses", is_compaction=True) if route.endswith(_COMPACT) else None
