"""Pure: the engine's counters, and their exposition under vLLM's names."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from replayer.engine.options import EngineOptions
from replayer.engine.simulation import Simulation

_HELP = {
    "vllm:prefix_cache_queries_total": "Prompt tokens looked up in the prefix cache.",
    "vllm:prefix_cache_hits_total": "Prompt tokens found in the prefix cache.",
    "vllm:prompt_tokens_total": "Prompt tokens of requests whose prefill is done.",
    "vllm:generation_tokens_total": "Tokens generated.",
    "vllm:request_success_total": "Requests that ended, by reason.",
    "vllm:num_preemptions_total": "Requests whose blocks were taken away; always 0.",
    "vllm:admission_rejections_total": "Requests refused before admission, by reason.",
    "vllm:num_requests_running": "Requests in the batch.",
    "vllm:num_requests_waiting": "Requests that wait for a place in the batch.",
    "vllm:kv_cache_usage_perc": "Blocks held by running requests / all blocks, 0-1; 0 without a limit.",
    "vllm:cache_config_info": "Block size in tokens and number of blocks.",
}
FINISHED_REASONS = ("stop", "length", "abort")
REJECTION_REASONS = ("max_num_queued_reqs", "fault")


@dataclass(slots=True, kw_only=True)
class Counters:
    """What only grows."""

    query_tokens: int = 0
    """Prompt tokens of all requests whose prefill began."""
    hit_tokens: int = 0
    """Those of them that were cached."""
    prompt_tokens: int = 0
    """Prompt tokens of all requests that came to their first token."""
    generation_tokens: int = 0
    """Tokens that came due."""
    finished: dict[str, int] = field(default_factory=lambda: dict.fromkeys(FINISHED_REASONS, 0))
    """Admitted requests that ended, by reason; `abort`: the client left, or a fault ended it."""
    rejected: dict[str, int] = field(default_factory=lambda: dict.fromkeys(REJECTION_REASONS, 0))
    """Requests refused, by reason."""


def exposition(counters: Counters, simulation: Simulation, options: EngineOptions) -> str:
    """All metrics in Prometheus' text format."""
    labels = {"model_name": options.model, "engine": "0"}
    blocks = "unlimited" if options.cache_blocks is None else str(options.cache_blocks)
    config = {
        "block_size": str(options.block_size),
        "num_gpu_blocks": blocks,
        "enable_prefix_caching": "True",
    }
    out: list[str] = []
    _write(out, "vllm:num_requests_running", [(labels, simulation.running)])
    _write(out, "vllm:num_requests_waiting", [(labels, simulation.waiting)])
    _write(out, "vllm:kv_cache_usage_perc", [(labels, simulation.cache.used_ratio)])
    _write(out, "vllm:cache_config_info", [(labels | config, 1)])
    _write(out, "vllm:prefix_cache_queries_total", [(labels, counters.query_tokens)])
    _write(out, "vllm:prefix_cache_hits_total", [(labels, counters.hit_tokens)])
    _write(out, "vllm:prompt_tokens_total", [(labels, counters.prompt_tokens)])
    _write(out, "vllm:generation_tokens_total", [(labels, counters.generation_tokens)])
    finished = [(labels | {"finished_reason": reason}, count) for reason, count in counters.finished.items()]
    _write(out, "vllm:request_success_total", finished)
    _write(out, "vllm:num_preemptions_total", [(labels, 0)])
    rejected = [(labels | {"reason": reason}, count) for reason, count in counters.rejected.items()]
    _write(out, "vllm:admission_rejections_total", rejected)
    return "".join(out)


def _write(out: list[str], name: str, samples: Sequence[tuple[dict[str, str], float]]) -> None:
    kind = "counter" if name.endswith("_total") else "gauge"
    out.append(f"# HELP {name} {_HELP[name]}\n# TYPE {name} {kind}\n")
    for labels, value in samples:
        pairs = ",".join(f'{key}="{_escaped(text)}"' for key, text in labels.items())
        out.append(f"{name}{{{pairs}}} {float(value)!r}\n")


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')
