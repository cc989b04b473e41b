"""Writes a small language model whose every answer is known, so that real engines can be tested without a download.

It is a plain Llama to an engine, which does all of its work with it: tokenizer, prefill, a cache of real size, batches.
Only the weights are odd. What attention and the inner layers add is multiplied by zero, so the next token depends on the
last one alone, and the output layer is a table: after any token that is no word of the answer comes the answer's first
word, after each of its words the next one, after the last the end. Where the end is forbidden it begins again, so an
answer can have any length. Its words tokenise back to themselves: the next prompt goes on from what the engine cached.

The vocabulary has the bytes and the 1,024 words that replays write, each with the space before it: so n words are n
tokens, here as at engines with large vocabularies.

    python model.py DIRECTORY           # model.gguf for llama.cpp; config and tokenizer as Hugging Face has them
    python model.py DIRECTORY small     # a prompt token costs about 2 ms on one core in place of 0.2 ms
"""

import struct
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray

from replayer.words import WORDS

Weights = dict[str, NDArray[np.float32]]

ANSWER_WORDS = 256
CONTEXT_TOKENS = 131_072
HEAD_SIZE = 64
LOGIT = 48.0
"""Of the token that comes next; noise is about a quarter of it."""
AGAIN = 0.8
"""Of it has the first word after the last one, behind the end of the answer."""
SPECIALS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
TEMPLATE = (
    "{%- for message in messages %}"
    "{{- '<|im_start|>' + message.role + '\\n' }}"
    "{%- if message.content is string %}{{- message.content }}{%- endif %}"
    "{{- '<|im_end|>\\n' }}"
    "{%- endfor %}"
    "{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """How large the network is."""

    width: int
    layers: int
    heads: int
    inner: int


SHAPES = {
    "tiny": Shape(width=256, layers=2, heads=4, inner=512),
    "small": Shape(width=512, layers=6, heads=8, inner=1536),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Vocabulary:
    """Tokens by their place, and how bytes become them."""

    tokens: tuple[str, ...]
    merges: tuple[tuple[str, str], ...]

    def id_of(self, token: str) -> int:
        return self.tokens.index(token)


def shown_bytes() -> dict[int, str]:
    """The printable character that stands for each byte in vocabularies of this kind (GPT-2's)."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in plain]
    return {byte: chr(byte) for byte in plain} | {byte: chr(256 + i) for i, byte in enumerate(others)}


def vocabulary() -> Vocabulary:
    """Bytes, words and special tokens. A word grows by one character with each merge, from its space on, so that no
    merge of one word can get in the way of another's.
    """
    shown = shown_bytes()
    tokens = list(shown.values())
    merges = []
    known = set(tokens)
    for word in WORDS:
        characters = [shown[byte] for byte in word]
        for length in range(2, len(characters) + 1):
            token = "".join(characters[:length])
            if token not in known:
                known.add(token)
                tokens.append(token)
                merges.append((token[:-1], token[-1]))
    unused = -(len(tokens) + len(SPECIALS)) % 64
    tokens += [*SPECIALS, *(f"<|unused_{number}|>" for number in range(unused))]
    return Vocabulary(tokens=tuple(tokens), merges=tuple(merges))


def answer_tokens(words: Vocabulary) -> list[int]:
    """The answer; every fourth word, so that it is in no order that a prompt would have."""
    shown = shown_bytes()
    return [
        words.id_of("".join(shown[byte] for byte in word)) for word in WORDS[:: len(WORDS) // ANSWER_WORDS]
    ]


def weights(shape: Shape, words: Vocabulary) -> Weights:
    """All tensors by their name in GGUF files."""
    generator = np.random.default_rng(5)
    answer, end = answer_tokens(words), words.id_of("<|im_end|>")
    signs = np.array([-1, 1], np.float32)
    start, *marks = generator.choice(signs, (len(answer) + 1, shape.width))
    vectors = np.tile(start, (len(words.tokens), 1))
    vectors[answer] = marks
    table = np.zeros_like(vectors)
    scale = np.float32(LOGIT / shape.width)
    table[answer[0]] = scale * start + AGAIN * scale * marks[-1]
    table[answer[1:]] = scale * np.array(marks[:-1])
    table[end] = scale * marks[-1]
    tensors: Weights = {
        "token_embd": vectors,
        "output": table,
        "output_norm": np.ones(shape.width, np.float32),
    }
    wide, kept = shape.heads * HEAD_SIZE, HEAD_SIZE
    for layer in range(shape.layers):
        sizes = {
            "attn_q": (wide, shape.width),
            "attn_k": (kept, shape.width),
            "attn_v": (kept, shape.width),
            "ffn_gate": (shape.inner, shape.width),
            "ffn_up": (shape.inner, shape.width),
        }
        for name, size in sizes.items():
            tensors[f"blk.{layer}.{name}"] = generator.standard_normal(size, np.float32) / np.sqrt(
                shape.width
            )
        tensors[f"blk.{layer}.attn_output"] = np.zeros((shape.width, wide), np.float32)
        tensors[f"blk.{layer}.ffn_down"] = np.zeros((shape.width, shape.inner), np.float32)
        tensors[f"blk.{layer}.attn_norm"] = tensors[f"blk.{layer}.ffn_norm"] = np.ones(
            shape.width, np.float32
        )
    return tensors


def gguf_string(text: str) -> bytes:
    data = text.encode()
    return struct.pack("<Q", len(data)) + data


def gguf_value(value: Any) -> bytes:
    """A value with its type in front."""
    match value:
        case bool():
            return struct.pack("<I?", 7, value)
        case int():
            return struct.pack("<II", 4, value)
        case float():
            return struct.pack("<If", 6, value)
        case str():
            return struct.pack("<I", 8) + gguf_string(value)
        case [str(), *_]:
            return struct.pack("<IIQ", 9, 8, len(value)) + b"".join(map(gguf_string, value))
        case _:
            return struct.pack(f"<IIQ{len(value)}i", 9, 5, len(value), *value)


def gguf(fields: dict[str, Any], tensors: Weights) -> bytes:
    """A GGUF file of version 3: fields, list of tensors, and their numbers, each at a multiple of 32 bytes."""
    listed, numbers = b"", bytearray()
    for name, tensor in tensors.items():
        sizes = tensor.shape[::-1]
        listed += gguf_string(f"{name}.weight") + struct.pack(f"<I{len(sizes)}Q", len(sizes), *sizes)
        listed += struct.pack("<IQ", 0, len(numbers))
        numbers += tensor.astype("<f4").tobytes()
        numbers += bytes(-len(numbers) % 32)
    written = b"".join(gguf_string(name) + gguf_value(value) for name, value in fields.items())
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(fields)) + written + listed
    return head + bytes(-len(head) % 32) + bytes(numbers)


def gguf_fields(shape: Shape, words: Vocabulary) -> dict[str, Any]:
    """What llama.cpp wants to know; its token types are 1 plain, 3 control and 5 unused."""
    types = [3 if token in SPECIALS else 5 if token.startswith("<|unused_") else 1 for token in words.tokens]
    return {
        "general.architecture": "llama",
        "general.name": "known-answer",
        "general.file_type": 0,
        "llama.vocab_size": len(words.tokens),
        "llama.context_length": CONTEXT_TOKENS,
        "llama.embedding_length": shape.width,
        "llama.block_count": shape.layers,
        "llama.feed_forward_length": shape.inner,
        "llama.attention.head_count": shape.heads,
        "llama.attention.head_count_kv": 1,
        "llama.attention.key_length": HEAD_SIZE,
        "llama.attention.value_length": HEAD_SIZE,
        "llama.rope.dimension_count": HEAD_SIZE,
        "llama.rope.freq_base": 1e6,
        "llama.attention.layer_norm_rms_epsilon": 1e-5,
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "gpt-2",
        "tokenizer.ggml.tokens": words.tokens,
        "tokenizer.ggml.token_type": types,
        "tokenizer.ggml.merges": [" ".join(pair) for pair in words.merges],
        "tokenizer.ggml.bos_token_id": words.id_of("<|endoftext|>"),
        "tokenizer.ggml.eos_token_id": words.id_of("<|im_end|>"),
        "tokenizer.ggml.add_bos_token": False,
        "tokenizer.chat_template": TEMPLATE,
    }


def hugging_face_files(shape: Shape, words: Vocabulary) -> dict[str, Any]:
    """Configuration and tokenizer, by file name: all that an engine without weights of its own needs."""
    special = [{"id": words.id_of(token), "content": token, "special": True} for token in SPECIALS]
    plain = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    in_bytes = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": True}
    end, start = words.id_of("<|im_end|>"), words.id_of("<|endoftext|>")
    return {
        "config.json": {
            "architectures": ["LlamaForCausalLM"],
            "model_type": "llama",
            "vocab_size": len(words.tokens),
            "hidden_size": shape.width,
            "intermediate_size": shape.inner,
            "num_hidden_layers": shape.layers,
            "num_attention_heads": shape.heads,
            "num_key_value_heads": 1,
            "head_dim": HEAD_SIZE,
            "hidden_act": "silu",
            "max_position_embeddings": CONTEXT_TOKENS,
            "rms_norm_eps": 1e-5,
            "rope_theta": 1e6,
            "tie_word_embeddings": False,
            "bos_token_id": start,
            "eos_token_id": end,
            "torch_dtype": "float32",
        },
        "generation_config.json": {"bos_token_id": start, "eos_token_id": [end, start]},
        "tokenizer.json": {
            "version": "1.0",
            "added_tokens": [token | plain for token in special],
            "pre_tokenizer": in_bytes,
            "decoder": in_bytes,
            "model": {
                "type": "BPE",
                "fuse_unk": False,
                "byte_fallback": False,
                "vocab": {token: i for i, token in enumerate(words.tokens) if i < special[0]["id"]},
                "merges": words.merges,
            },
        },
        "tokenizer_config.json": {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "eos_token": "<|im_end|>",
            "add_bos_token": False,
            "clean_up_tokenization_spaces": False,
            "model_max_length": CONTEXT_TOKENS,
            "chat_template": TEMPLATE,
        },
    }


def safetensors(tensors: Weights) -> bytes:
    """The weights under the names that transformers has for them; vLLM reads this."""
    names = {
        "token_embd": "model.embed_tokens",
        "output": "lm_head",
        "output_norm": "model.norm",
        "attn_q": "self_attn.q_proj",
        "attn_k": "self_attn.k_proj",
        "attn_v": "self_attn.v_proj",
        "attn_output": "self_attn.o_proj",
        "ffn_gate": "mlp.gate_proj",
        "ffn_up": "mlp.up_proj",
        "ffn_down": "mlp.down_proj",
        "attn_norm": "input_layernorm",
        "ffn_norm": "post_attention_layernorm",
    }
    listed, numbers = {}, bytearray()
    for name, tensor in tensors.items():
        place, _, part = name.rpartition(".")
        prefix = place.replace("blk", "model.layers") + "." if place else ""
        begin = len(numbers)
        numbers += tensor.astype("<f4").tobytes()
        listed[f"{prefix}{names[part]}.weight"] = {
            "dtype": "F32",
            "shape": tensor.shape,
            "data_offsets": [begin, len(numbers)],
        }
    head = orjson.dumps(listed)
    head += b" " * (-len(head) % 8)
    return struct.pack("<Q", len(head)) + head + bytes(numbers)


def write_model(directory: Path, shape: Shape) -> None:
    """All files of a model; the last one to be written is `model.gguf`."""
    directory.mkdir(parents=True, exist_ok=True)
    words = vocabulary()
    for name, content in hugging_face_files(shape, words).items():
        (directory / name).write_bytes(orjson.dumps(content))
    tensors = weights(shape, words)
    (directory / "model.safetensors").write_bytes(safetensors(tensors))
    (directory / "model.gguf").write_bytes(gguf(gguf_fields(shape, words), tensors))


if __name__ == "__main__":
    write_model(Path(sys.argv[1]), SHAPES[sys.argv[2] if len(sys.argv) > 2 else "tiny"])
