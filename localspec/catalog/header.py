"""Reads a GGUF's header in pure Python, before native code sees the file."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from localspec.catalog import reader, rules
from localspec.catalog.reader import Array, Parsed, Tensor, Value
from localspec.errors import BadGGUF, Unreadable

_T = TypeVar("_T")

_POOLED = range(1, 5)
"""llama.cpp's pooling types that give one result for a whole text; 0 is none."""
_RANKS = 4
"""The pooling type whose result is a score."""
_FIRST_BYTES = 1024 * 1024
"""Bytes read first; more are read while the header goes on. Large vocabularies take megabytes."""


_FIX = "Fetch it again (localspec models pull), or convert it again."


@dataclass(frozen=True, slots=True, eq=False)
class Header:
    """A checked header: every size is possible, and every tensor lies inside the file.

    `file` is the file's name, for messages; `path` is where `read` found it, otherwise None.
    Arrays of `metadata` are decoded when their elements are asked for.
    """

    file: str
    version: int
    metadata: Mapping[str, Value]
    tensors: tuple[Tensor, ...]
    file_bytes: int
    path: Path | None = None

    @property
    def architecture(self) -> str:
        """llama.cpp's name of the model family, such as "qwen2"."""
        return self.text("general.architecture")

    @property
    def layers(self) -> int:
        """The number of transformer blocks."""
        return self.number("block_count")

    @property
    def context_length(self) -> int:
        """The context length in tokens that the model was trained for."""
        return self.number("context_length")

    @property
    def vocabulary_size(self) -> int:
        """The number of tokens; ids run from 0 to one less."""
        return len(self._tokens)

    @property
    def tokenizer(self) -> str:
        """The kind of tokenizer: "gpt2" is byte-level BPE, "llama" is SentencePiece."""
        return self.text("tokenizer.ggml.model")

    @property
    def chat_template(self) -> str | None:
        """The Jinja source that turns messages into a prompt, if the file carries one."""
        value = self.metadata.get("tokenizer.chat_template")
        return value if isinstance(value, str) and value.strip() else None

    @property
    def embeds(self) -> bool:
        """Whether it is an embedding or reranking model, which generates no text."""
        return self.number("pooling_type") in _POOLED

    @property
    def ranks(self) -> bool:
        """Whether it is a reranking model, which scores how well a text answers a query."""
        return self.number("pooling_type") == _RANKS

    @property
    def parameters(self) -> int:
        """The number of weights, counted over all tensors."""
        return sum(tensor.num_elements for tensor in self.tensors)

    @property
    def weight_bytes(self) -> int:
        """The bytes of all tensors."""
        return sum(tensor.num_bytes for tensor in self.tensors)

    def tokens(self) -> list[bytes]:
        """The text of each token by id, in the tokenizer's spelling."""
        return self._tokens.strings()

    def text(self, key: str) -> str:
        """A string of the metadata; "" when it is missing or of another type."""
        value = self.metadata.get(key)
        return value if isinstance(value, str) else ""

    def number(self, name: str, default: int = 0) -> int:
        """A whole number of the architecture's metadata, such as "block_count"."""
        value = self.metadata.get(f"{self.architecture}.{name}", default)
        return value if isinstance(value, int) else default

    def per_layer(self, name: str, default: int = 0) -> tuple[int, ...]:
        """A number by layer, such as "attention.head_count_kv"; a single one holds for all."""
        value = self.metadata.get(f"{self.architecture}.{name}")
        if isinstance(value, Array):
            return value.numbers()
        return (self.number(name, default),) * self.layers

    @property
    def _tokens(self) -> Array:
        value = self.metadata["tokenizer.ggml.tokens"]
        assert isinstance(value, Array)  # noqa: S101 - rules.py has refused everything else
        return value


def read(path: Path) -> Header:
    """The checked header of a model file. Raises BadGGUF with the reason; reads no weights."""
    return _named(path, _checked)


def parse(path: Path) -> Parsed:
    """The keys and tensors of a GGUF, which need not be a whole model. Raises BadGGUF."""
    return _named(path, _parse)[1]


def stamp(path: Path) -> tuple[int, float]:
    """Size and modification time of a file, the key of cached findings; zeros if it is missing."""
    try:
        found = path.stat()
    except OSError:
        return 0, 0.0
    return found.st_size, found.st_mtime


def _named(path: Path, work: Callable[[Path], _T]) -> _T:
    try:
        return work(path)
    except BadGGUF as error:
        fix = error.fix or _FIX
        raise BadGGUF(f"{path.name} cannot be used. {error.message}", fix=fix) from None
    except OSError as error:
        fix = f"Look at it: ls -l {path}"
        raise Unreadable(f"{path.name} cannot be read: {error.strerror}.", fix=fix) from error


def _checked(path: Path) -> Header:
    file_bytes, parsed = _parse(path)
    rules.check(parsed)
    return Header(path.name, parsed.version, parsed.metadata, parsed.tensors, file_bytes, path)


def _parse(path: Path) -> tuple[int, Parsed]:
    # Without O_NONBLOCK, opening a FIFO would wait for a writer that never comes.
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(handle, "rb") as file:
        found = os.fstat(handle)
        if not stat.S_ISREG(found.st_mode):
            reader.refuse("It is not a regular file.")
        try:
            first = file.read(_FIRST_BYTES)
            return found.st_size, reader.parse(first, found.st_size, file.read)
        except reader.Incomplete:
            reader.refuse("The file became shorter while it was read.")
