"""The values that clients get: counts, times, likelihoods, parts of calls. No engine, no numpy."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path
from typing import Literal

import msgspec


class Snippet(msgspec.Struct, frozen=True):
    """A part of another file, as context for an infill."""

    text: str
    filename: str = ""


class Alternative(msgspec.Struct, frozen=True, array_like=True):
    """A possible token, its bytes, and its log-probability, NaN at the beginning of a text."""

    token: int
    piece: bytes
    logprob: float


class TokenLogprob(msgspec.Struct, frozen=True, array_like=True):
    """The likelihood of one token of the answer, before any sampler.

    `top` are the likeliest tokens at its position, best first; the chosen one may be among them.
    """

    chosen: Alternative
    top: list[Alternative] = []


class CallDelta(msgspec.Struct, frozen=True, array_like=True):
    """A part of one call of a function. The first part has id and name, later ones arguments.

    `index` counts the answer's calls; all `arguments` of one together are a JSON object.
    """

    index: int
    id: str = ""
    name: str = ""
    arguments: str = ""


class Usage(msgspec.Struct, frozen=True):
    """OpenAI's counts. Cached tokens are part of the prompt, the last two of the completion."""

    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int
    predicted_tokens: int = 0
    reasoning_tokens: int = 0


class Timings(msgspec.Struct, frozen=True):
    """llama-server's `timings` object, field for field, times in milliseconds.

    Three fields are ours: of the `cache_n` tokens that were not read, those from the slot, and
    those from the prefix store, in memory and on disk.
    """

    cache_n: int
    prompt_n: int
    prompt_ms: float
    prompt_per_token_ms: float
    prompt_per_second: float
    predicted_n: int
    predicted_ms: float
    predicted_per_token_ms: float
    predicted_per_second: float
    draft_n: int = 0
    draft_n_accepted: int = 0
    cache_slot_n: int = 0
    cache_memory_n: int = 0
    cache_disk_n: int = 0

    @staticmethod
    def origins(cached: int, origin: str) -> dict[str, int]:
        """The last three fields, of tokens that all come from one place."""
        return {f"cache_{name}_n": cached * (name == origin) for name in ("slot", "memory", "disk")}


class Adapter(msgspec.Struct, frozen=True):
    """A LoRA adapter that fits its model, and its scale for requests that name none."""

    path: str
    scale: float = 0.0


class DraftHead(msgspec.Struct, frozen=True):
    """A head that fits its target. `layers` are those whose inputs it is given; `path` its file.

    Without a path it is inside of the target's file. `shares` names the tensors that it takes from
    the target because it has none of its own: embeddings, output. `count` is the number of its
    layers. Of several, the first one drafts every token: each further one would have to read all of
    the text once more.
    """

    kind: Literal["eagle3", "mtp"]
    path: str = ""
    layers: tuple[int, ...] = ()
    shares: tuple[str, ...] = ()
    file_bytes: int = 0
    count: int = 1

    @property
    def sentence(self) -> str:
        """The head in words for people."""
        if self.kind == "mtp":
            where = f" in {Path(self.path).name}" if self.path else " inside of the target's file"
            which = f", of {self.count} the first for every token" if self.count > 1 else ""
            return f"prediction layers (MTP){where}{which}"
        fed = ", ".join(map(str, self.layers))
        return f"EAGLE-3 head {Path(self.path).name}, fed by layers {fed}"


class PrefixFigures(msgspec.Struct, frozen=True):
    """The size of a prefix store, and what it has saved: prompts, their tokens, and seconds.

    `texts` are those of the target; bytes count copies for draft models too.
    """

    texts: int = 0
    memory_bytes: int = 0
    disk_bytes: int = 0
    hits: int = 0
    tokens: int = 0
    seconds: float = 0.0

    def and_one(self, tokens: int, seconds: float) -> PrefixFigures:
        """These figures with one more prompt, which was spared so many tokens and seconds."""
        return msgspec.structs.replace(
            self, hits=self.hits + 1, tokens=self.tokens + tokens, seconds=self.seconds + seconds
        )

    def since(self, before: PrefixFigures) -> PrefixFigures:
        """The savings after `before`."""
        return PrefixFigures(
            hits=self.hits - before.hits,
            tokens=self.tokens - before.tokens,
            seconds=self.seconds - before.seconds,
        )


_MARK = "image-sha256-"
MARKS = re.compile(f"{_MARK}[0-9a-f]{{64}}")
"""The marks of images in a text."""


class Image(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An image's file as it came, at the place `param` of a request.

    `mark` stands for the image in the text of its message. It is made of the data, so the same
    image has the same mark, and a text that happens to hold it shows an image that is there anyway.
    """

    param: str
    data: bytes
    mark: str = ""

    def __post_init__(self) -> None:
        if not self.mark:
            mark = f"{_MARK}{hashlib.sha256(self.data).hexdigest()}"
            msgspec.structs.force_setattr(self, "mark", mark)
