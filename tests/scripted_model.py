"""A tiny model that says by heart what it is given: real weights, run by the real llama.cpp.

Each token has a direction of its own in the residual stream, the layers add nothing, and the output
head of a token looks for the direction of the one before it. So a test of a client knows what a
model answers that is free to choose: that it calls a function, for one.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import tiny

from localspec.bench.shapes import byte_alphabet

MARKS = ("<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>")
CALL = ('<tool_call>\n{"name": "gu', 'ess", "arguments": {"wo', 'rd": "left"}}\n</tool_call>')
"""Where functions are offered it calls `guess`."""
RESULT = ("So it ", "is left.")
SPEECH = ("One ", "two ", "three.")
ENDLESS = ("tick ", "tock ")
"""The words that it repeats when asked "for ever"."""
MIDDLE = ("urn a ", "+ b\n")
ANSWERS = {"\r": CALL, "\t": RESULT, "\n": SPEECH, "\v": ENDLESS, MARKS[2]: MIDDLE}
"""By the end of a prompt."""
TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message.role }} {{ message.content }}<|im_end|>"
    "{% endfor %}{% set last = messages[-1].content %}"
    "{{ '\\v' if 'for ever' in last else '\\t' if '<tool_response>' in last "
    "else '\\r' if '<tools>' in messages[0].content else '\\n' }}"
)
_WIDTH = 64
_SURE = 4.0


def build(path: Path) -> Path:
    """Write the model to `path` and return it."""
    alphabet = byte_alphabet()
    spelled = [
        "".join(alphabet[byte] for byte in piece.encode())
        for answer in ANSWERS.values()
        for piece in answer
    ]
    specials = (*spelled, *MARKS)
    writer, vocabulary = tiny.begun(path, "llama", template=TEMPLATE, specials=specials)
    mark = {text: vocabulary - len(MARKS) + at for at, text in enumerate(MARKS)}
    said = vocabulary - len(MARKS) - len(spelled)
    embedding = np.zeros((vocabulary, _WIDTH), dtype=np.float32)
    head = np.zeros((vocabulary, _WIDTH), dtype=np.float32)
    embedding[:, 0] = 1.0
    head[said - 1, 0] = _SURE  # <|im_end|> comes where nothing follows, or what ends JSON soonest
    head[[ord(char) for char in '"}]'], 0] = _SURE / 2
    head[[ord(char) for char in " \t\r\n"], 0] = -_SURE
    direction = 0
    for end, answer in ANSWERS.items():
        tokens = [mark.get(end) or ord(end), *range(said, said + len(answer))]
        said += len(answer)
        follows = [*tokens[1:], *([tokens[1]] if answer == ENDLESS else [])]
        for before, token in zip(tokens, follows, strict=False):
            direction += 1
            embedding[before] = np.eye(_WIDTH)[direction]
            head[token, direction] = _SURE
    writer.add_embedding_length(_WIDTH)
    writer.add_block_count(1)
    writer.add_feed_forward_length(_WIDTH)
    writer.add_head_count(2)
    writer.add_head_count_kv(2)
    writer.add_rope_dimension_count(_WIDTH // 2)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_tensor("token_embd.weight", embedding)
    writer.add_tensor("output.weight", head)
    writer.add_tensor("output_norm.weight", np.ones(_WIDTH, dtype=np.float32))
    for norm in ("attn_norm", "ffn_norm"):
        writer.add_tensor(f"blk.0.{norm}.weight", np.ones(_WIDTH, dtype=np.float32))
    for name in ("attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down"):
        zeros = np.zeros((_WIDTH, _WIDTH), dtype=np.float32)
        writer.add_tensor(f"blk.0.{name}.weight", zeros)
    return tiny.ended(writer, path)
