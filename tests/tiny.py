"""Tiny random models in real GGUF files, run by the real llama.cpp.

The tokenizer is byte-level BPE without merges worth speaking of, or SentencePiece with few pieces:
any text has tokens, and a random model's answers are soup. What matters is that the numbers are
computed by the same kernels.
"""

from __future__ import annotations

import string
from collections.abc import Collection, Mapping
from pathlib import Path
from types import MappingProxyType

import gguf
import numpy as np

from localspec.bench.shapes import byte_alphabet

SPECIALS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
SENTENCEPIECES = (
    "<|unknown|>", *(f"<0x{byte:02X}>" for byte in range(256)), *string.printable[:94], "▁",
    "re", "ur", "ret", "urn", "▁ret", "return", "▁return", "▁▁", "▁▁▁▁",
)  # fmt: skip
"""The earlier of two is joined first."""
ALWAYS = 6.0
"""The first number of every embedding, where some tokens are never to be said."""
TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def build(
    path: Path,
    *,
    seed: int = 0,
    layers: int = 2,
    width: int = 64,
    like: int | None = None,
    noise: float = 0.0,
    extra_tokens: int = 0,
    quantization: gguf.GGMLQuantizationType = gguf.GGMLQuantizationType.Q4_0,
    sharpness: float = 4.0,
    template: str = TEMPLATE,
    split_tensors: int = 0,
    specials: tuple[str, ...] = (),
    sentencepiece: bool = False,
) -> Path:
    """Write a random Llama to `path` and return it.

    Args:
        path: Where the GGUF goes.
        seed: Chooses the weights.
        layers: Transformer blocks.
        width: Embedding length, a multiple of 32.
        like: Seed of a model that this one imitates: its weights plus `noise`, so that as a draft
            it is accepted often but not always.
        noise: Standard deviation of the difference, relative to the weights.
        extra_tokens: Additional vocabulary, for pairs that do not match.
        quantization: Type of the matrices.
        sharpness: Scale of the output head; higher makes more certain models.
        template: The chat template in the file.
        split_tensors: Most tensors of a file; then there are several, `path` with numbers.
        specials: Additional control tokens, such as "<|fim_prefix|>", and without the bars such as
            are taken everywhere.
        sentencepiece: Whether the tokenizer is one of those that write a blank before a text.
    """
    writer, vocabulary = begun(
        path,
        "llama",
        seed,
        extra_tokens=extra_tokens,
        template=template,
        split_tensors=split_tensors,
        specials=specials,
        sentencepiece=sentencepiece,
    )
    weights(
        writer,
        vocabulary,
        seed=seed,
        layers=layers,
        width=width,
        like=like,
        noise=noise,
        quantization=quantization,
        sharpness=sharpness,
    )
    return ended(writer, path)


def weights(
    writer: gguf.GGUFWriter,
    vocabulary: int,
    *,
    seed: int = 0,
    layers: int = 2,
    width: int = 64,
    like: int | None = None,
    noise: float = 0.0,
    quantization: gguf.GGMLQuantizationType = gguf.GGMLQuantizationType.Q4_0,
    sharpness: float = 4.0,
    never: tuple[int, ...] = (),
) -> None:
    """Add a random Llama to a file that has its vocabulary; it says none of `never`.

    Every state then has a large first number, by which those tokens' logits are far below others.
    """
    writer.add_embedding_length(width)
    writer.add_block_count(layers)
    writer.add_feed_forward_length(width * 2)
    writer.add_head_count(4)
    writer.add_head_count_kv(2)
    writer.add_rope_dimension_count(width // 4)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_Q4_0)
    random = np.random.default_rng(seed if like is None else like)
    differ = np.random.default_rng(seed + 1)

    def matrix(name: str, rows: int, columns: int, scale: float) -> None:
        values = random.normal(0, scale, (rows, columns))
        if noise:
            values += differ.normal(0, scale * noise, (rows, columns))
        if never and name == "token_embd.weight":
            values[:, 0] = ALWAYS
        if never and name == "output.weight":
            values[:, 0] = 0
            values[never, 0] = -ALWAYS
        packed = gguf.quants.quantize(values.astype(np.float32), quantization)
        writer.add_tensor(name, packed, raw_dtype=quantization)

    def ones(name: str) -> None:
        writer.add_tensor(name, np.ones(width, dtype=np.float32))

    inner = width**-0.5
    matrix("token_embd.weight", vocabulary, width, 1.0)
    ones("output_norm.weight")
    matrix("output.weight", vocabulary, width, sharpness * inner)
    for layer in range(layers):
        block = f"blk.{layer}."
        ones(block + "attn_norm.weight")
        ones(block + "ffn_norm.weight")
        matrix(block + "attn_q.weight", width, width, inner)
        matrix(block + "attn_k.weight", width // 2, width, inner)
        matrix(block + "attn_v.weight", width // 2, width, inner)
        matrix(block + "attn_output.weight", width, width, inner)
        matrix(block + "ffn_gate.weight", width * 2, width, inner)
        matrix(block + "ffn_up.weight", width * 2, width, inner)
        matrix(block + "ffn_down.weight", width, width * 2, inner)


def lora(
    path: Path,
    *,
    seed: int = 0,
    rank: int = 4,
    alpha: float = 8.0,
    layers: int = 2,
    width: int = 64,
    architecture: str = "llama",
    kind: str = "lora",
    strength: float = 0.5,
    only: tuple[str, ...] = (),
    quantization: gguf.GGMLQuantizationType = gguf.GGMLQuantizationType.F16,
) -> Path:
    """Write a random LoRA adapter of a model that `build` writes, and return its path.

    `only` keeps matrices with these names. The output is changed as well as every block.
    """
    writer = gguf.GGUFWriter(path, architecture)
    writer.add_type("adapter")
    writer.add_string("adapter.type", kind)
    writer.add_float32("adapter.lora.alpha", alpha)
    random = np.random.default_rng(seed)
    shapes = {"attn_q": (width, width), "attn_v": (width // 2, width), "ffn_up": (width * 2, width)}
    named = {
        f"blk.{layer}.{name}": shape for layer in range(layers) for name, shape in shapes.items()
    }
    for name, (rows, columns) in named.items():
        if only and name not in only:
            continue
        for end, size in (("lora_a", (rank, columns)), ("lora_b", (rows, rank))):
            values = random.normal(0, strength * columns**-0.5 if end == "lora_a" else 1.0, size)
            packed = gguf.quants.quantize(values.astype(np.float32), quantization)
            writer.add_tensor(f"{name}.weight.{end}", packed, raw_dtype=quantization)
    return ended(writer, path)


def begun(
    path: Path,
    architecture: str,
    seed: int = 0,
    *,
    context: int = 4096,
    extra_tokens: int = 0,
    template: str = TEMPLATE,
    split_tensors: int = 0,
    specials: tuple[str, ...] = (),
    normal: Collection[str] = (),
    kinds: Mapping[str, gguf.TokenType] = MappingProxyType({}),
    sentencepiece: bool = False,
    pre: str = "qwen2",
    greedy: bool = False,
) -> tuple[gguf.GGUFWriter, int]:
    """A file with a name, a context length and the tokenizer; and the size of its vocabulary.

    Tokens in `normal` are normal ones, whatever they look like; `kinds` has types of others. `pre`
    is how llama.cpp cuts a text before it tokenizes by bytes. A `greedy` tokenizer, RWKV's, takes
    the longest token everywhere.
    """
    single = [f"\\x{byte:02x}" for byte in range(256)] if greedy else byte_alphabet()
    words = SENTENCEPIECES if sentencepiece else (*single, "th", "he", "in")
    vocabulary = [*words, *SPECIALS]
    vocabulary += [*(f"<|extra_{index}|>" for index in range(extra_tokens)), *specials]
    writer = gguf.GGUFWriter(path, architecture, split_max_tensors=split_tensors)
    writer.add_name(f"tiny-{seed}")
    writer.add_context_length(context)
    writer.add_token_list(vocabulary)
    known = {**kinds, **dict.fromkeys(normal, gguf.TokenType.NORMAL)}
    writer.add_token_types([known.get(one) or kind_of(one) for one in vocabulary])
    if sentencepiece:
        writer.add_tokenizer_model("llama")
        writer.add_token_scores([-float(token) for token in range(len(vocabulary))])
        writer.add_unk_token_id(vocabulary.index("<|unknown|>"))
    elif greedy:
        writer.add_tokenizer_model("rwkv")
    else:
        writer.add_tokenizer_model("gpt2")
        writer.add_tokenizer_pre(pre)
        writer.add_token_merges(["t h", "h e", "i n"])
    writer.add_bos_token_id(vocabulary.index("<|endoftext|>"))
    writer.add_eos_token_id(vocabulary.index("<|im_end|>"))
    writer.add_add_bos_token(False)
    writer.add_chat_template(template)
    return writer, len(vocabulary)


def kind_of(token: str) -> gguf.TokenType:
    """The type of a token by its text."""
    if token.startswith("<|"):
        return gguf.TokenType.CONTROL
    if token.startswith("<0x"):
        return gguf.TokenType.BYTE
    tag = token.startswith("<") and token[1:].endswith(">")
    return gguf.TokenType.USER_DEFINED if tag else gguf.TokenType.NORMAL


def ended(writer: gguf.GGUFWriter, path: Path) -> Path:
    """Write what was added; the path."""
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path
