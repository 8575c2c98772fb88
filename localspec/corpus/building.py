"""Makes an index anew in short pieces; files that are unchanged are not read again."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from localspec import paths
from localspec.corpus import folders
from localspec.corpus.contents import Contents, Folder, IndexedFile, layout
from localspec.corpus.folders import File, Found
from localspec.corpus.index import BACK, MOST_TOKENS, SIZES, Index, header, joined, keys
from localspec.errors import LocalSpecError
from localspec.types import Token

if TYPE_CHECKING:
    from numpy.typing import NDArray

_CHUNK_CHARS = 8192
"""Text that is tokenized in one piece: a few milliseconds, and no deep recursion of a tokenizer."""
_WRITE_BYTES = 1 << 22
_BYTES_PER_TOKEN = 3
"""Source has more bytes per token than this: files chosen by it never have too many tokens."""


@dataclass(frozen=True, slots=True)
class Built:
    """The result of a build; `changing` counts files that were written meanwhile.

    `path` is the new file, None where nothing had changed.
    """

    path: Path | None
    found: tuple[Found, ...]
    changing: int


def build(
    names: Sequence[str],
    tokenize: Callable[[str], Sequence[Token]],
    path: Path,
    old: Index | None,
    tokenizer: str = "",
) -> Generator[None, None, Built]:
    """Write the index of these folders to `path`, unless `old` is that already.

    Raises OSError where it cannot be written; then the old file is untouched.
    """
    found: list[Found] = []
    for name in names:
        each = yield from folders.walk(name)
        found.append(each)
    chosen, crowded_out = folders.newest(found, MOST_TOKENS * _BYTES_PER_TOKEN)
    if old is not None and _unchanged(old.contents, chosen, found):
        return Built(None, tuple(found), 0)
    texts, changing = [], 0
    room = MOST_TOKENS
    held: list[IndexedFile] = []
    start = BACK
    known = {each[:4]: each for each in map(_fields, old.contents.files)} if old else {}
    left_out: dict[str, str] = {}
    too_long: list[File] = []
    for file in chosen:
        tokens = _kept(known.get(tuple(file)), old)
        if tokens is None:
            tokens, why = yield from _tokenized(file, tokenize)
            if why:
                changing += why == "changing"
                left_out[file.path] = why
        if len(tokens) + 1 > room:
            too_long.append(file)
            continue
        room -= len(tokens) + 1
        texts.append(tokens)
        held.append(IndexedFile(*file, start, len(tokens)))
        start += len(tokens) + 1
    yield
    contents = Contents(
        tokenizer,
        0,
        (0, 0, 0),
        tuple(_folders(found, held, left_out)),
        tuple(held),
        crowded_out + len(too_long),
        tuple(too_long),
    )
    yield from _write(path, contents, joined(texts))
    return Built(path, tuple(found), changing)


def _fields(held: IndexedFile) -> tuple[Any, ...]:
    return held.path, held.size, held.mtime_ns, held.inode, held.start, held.tokens


def _kept(known: tuple[Any, ...] | None, old: Index | None) -> NDArray[np.uint32] | None:
    """The tokens of a file that has not changed."""
    if known is None or old is None:
        return None
    start, count = known[4:]
    return old.tokens[start : start + count] if start + count <= len(old) else None


def _unchanged(contents: Contents, chosen: Sequence[File], found: Sequence[Found]) -> bool:
    """Whether an index was made of just these files.

    One that is no text is in it too, without tokens; one that found no room is remembered.
    """
    before = {(each.path, each.size, each.mtime_ns, each.inode) for each in contents.files}
    before |= set(contents.too_long)
    told = [(each.folder, each.why) for each in contents.folders]
    return before == {tuple(file) for file in chosen} and told == [
        (each.folder, each.why) for each in found
    ]


def _tokenized(
    file: File, tokenize: Callable[[str], Sequence[Token]]
) -> Generator[None, None, tuple[NDArray[np.uint32], str]]:
    """The tokens of a file, made in pieces; or none, and why the file is left out."""
    text, why = folders.read(file)
    yield
    tokens: list[Token] = []
    for part in _chunks(text or ""):
        try:
            tokens += tokenize(part)
        except (LocalSpecError, ValueError):
            return np.zeros(0, np.uint32), "not tokenized"
        yield
    return np.asarray(tokens, np.uint32), why


def _chunks(text: str) -> Iterator[str]:
    """Parts of a text that end at the end of a line, unless that is too long."""
    start = 0
    while start < len(text):
        stop = start + _CHUNK_CHARS
        line = text.rfind("\n", start, stop) + 1
        stop = line if line > start and stop < len(text) else stop
        yield text[start:stop]
        start = stop


def _folders(
    found: Sequence[Found], held: Sequence[IndexedFile], left_out: Mapping[str, str]
) -> Iterator[Folder]:
    """Each folder by its indexed files; `left_out` are the reasons why single files are not."""
    tokens = {each.path: each.tokens for each in held}
    for each in found:
        mine = [tokens[file.path] for file in each.files if tokens.get(file.path)]
        why = (left_out[file.path] for file in each.files if file.path in left_out)
        reasons = dict(sorted((each.left_out + Counter(why)).items()))
        yield Folder(each.folder, each.why, len(mine), sum(mine), reasons)


def _write(path: Path, contents: Contents, tokens: NDArray[np.uint32]) -> Iterator[None]:
    """Write an index beside the old one and put it in its place, in pieces. Raises OSError.

    It is a cache and not synced: after a power loss its size is wrong, or searches find nothing.
    """
    paths.make_private(path.parent)
    tables: list[NDArray[np.uint64]] = []
    for part in keys(tokens):
        if len(part):
            tables.append(part)
        yield
    tables += [np.zeros(0, np.uint64)] * (len(SIZES) - len(tables))
    counts = tuple(map(len, tables))
    told = Contents(
        contents.tokenizer,
        len(tokens),
        (counts[0], counts[1], counts[2]),
        contents.folders,
        contents.files,
        contents.crowded_out,
        contents.too_long,
    )
    head = header(told)
    sections = layout(len(head), len(tokens), counts)
    parts = [(0, memoryview(head)), (sections.tokens, memoryview(tokens.view(np.uint8).data))]
    parts += [
        (place, memoryview(table.view(np.uint8).data))
        for place, table in zip(sections.keys, tables, strict=True)
        if len(table)
    ]
    with paths.beside(path) as temporary:
        with os.fdopen(paths.create(temporary), "wb") as file:
            for place, data in parts:
                file.seek(place)
                for start in range(0, len(data), _WRITE_BYTES):
                    file.write(data[start : start + _WRITE_BYTES])
                    yield
            file.truncate(sections.end)
        temporary.replace(path)
