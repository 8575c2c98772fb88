"""Converts published heads: `python -m localspec.worker.convert_head TARGET SOURCE HEAD`.

Tensors of Medusa heads (FasterDecoding/Medusa) are named `i.j.linear` for block j of head i and
`i.n` for its output; those of Hydra heads (zankner/Hydra) `hydra_mlp.i.j.linear` and
`.res_connection`, and `hydra_lm_head.i`. The result is a file like that of a feature head, in
formats that are fast on the CPU.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from localspec import paths
from localspec.built import installed
from localspec.catalog import header, writer
from localspec.catalog.header import Header
from localspec.catalog.memory import show_bytes
from localspec.catalog.writer import Tensor
from localspec.engine.llama.products import FORMATS, Products
from localspec.engine.speculation.position_heads import MOST_POSITIONS
from localspec.errors import BadPair, ModelError
from localspec.types import Floats
from localspec.worker import command, heads, tensor_files
from localspec.worker.tensor_files import FileTensor

_MEDUSA = re.compile(r"(?:.*medusa_heads?\.)?(\d{1,3})\.(\d{1,3})(\.linear)?\.(weight|bias)")
_HYDRA = re.compile(r"(?:.*\.)?hydra_mlp\.(\d{1,3})\.(\d{1,3})\.(linear|res_connection)\.(\w+)")
_HYDRA_OUTPUT = re.compile(r"(?:.*\.)?hydra_lm_head\.(\d{1,3})(?:\.\d)?\.(weight|bias)")
_PREFIX = "prefix_embeding_layer"  # as zankner/Hydra spells it
_NAMES = ("medusa_lm_head.safetensors", "medusa_lm_head.pt", "hydra_lm_head.pt")


@dataclass(slots=True)
class Published:
    """The heads of a file. `blocks[head][block]` and `outputs[head]` hold tensors by name.

    Names in a block are "linear.weight", "linear.bias" and, for a map of the skip connection,
    "res_connection.weight"; names in an output are "weight" and "bias".
    """

    kind: str
    blocks: dict[int, dict[int, dict[str, FileTensor]]] = field(default_factory=dict)
    outputs: dict[int, dict[str, FileTensor]] = field(default_factory=dict)


def main() -> int:
    """Convert; the exit code is 0, the error's, or 130."""
    parser = argparse.ArgumentParser(prog="python -m localspec.worker.convert_head")
    parser.add_argument("target", type=Path)
    parser.add_argument("source", type=Path)
    parser.add_argument("head", type=Path)
    parser.add_argument("--words", type=int, default=32_768)
    return command.run(parser, _make)


def _make(asked: argparse.Namespace) -> None:
    """Write the head. Raises LocalSpecError, OSError."""
    source = _file(asked.source)
    found = published(source.name, tensor_files.read(source))
    made = converted(source.name, found, asked.target, asked.words)
    paths.make_directory(asked.head.parent, paths.MODELS_MODE)
    paths.write_atomically(asked.head, made, mode=paths.MODEL_MODE)
    count = len(found.outputs)
    sys.stderr.write(f"{found.kind}, {count} positions: {show_bytes(len(made))}\n")


def _file(source: Path) -> Path:
    """The file of heads: `source` itself, or the one in it if it is a fetched directory."""
    if not source.is_dir():
        return source
    there = [source / name for name in _NAMES if (source / name).is_file()]
    there = there or sorted(source.glob("*.safetensors"))
    if len(there) != 1:
        raise ModelError(
            f"{source.name} holds {len(there)} files that may be heads.", fix="Name the file."
        )
    return there[0]


def published(name: str, tensors: Mapping[str, FileTensor]) -> Published:
    """The heads among the tensors of the file `name`. Raises ModelError."""
    hydra = any("hydra_mlp." in each for each in tensors)
    if any(_PREFIX in each for each in tensors):
        raise ModelError(
            f"{name} holds Hydra heads with a prefix layer (Hydra++), which has attention.",
            fix="Convert Hydra heads without it, or teach one: localspec models head --kind eagle3",
        )
    found = Published("Hydra heads" if hydra else "Medusa heads")
    for each, tensor in tensors.items():
        if hydra and (match := _HYDRA.fullmatch(each)):
            block = found.blocks.setdefault(int(match[1]), {}).setdefault(int(match[2]), {})
            block[f"{match[3]}.{match[4]}"] = tensor
        elif hydra and (match := _HYDRA_OUTPUT.fullmatch(each)):
            found.outputs.setdefault(int(match[1]), {})[match[2]] = tensor
        elif not hydra and (match := _MEDUSA.fullmatch(each)):
            head = found.blocks.setdefault(int(match[1]), {})
            if match[3]:
                head.setdefault(int(match[2]), {})[f"linear.{match[4]}"] = tensor
            else:
                found.outputs.setdefault(int(match[1]), {})[match[4]] = tensor
    if not found.outputs:
        raise ModelError(
            f"{name} holds no Medusa and no Hydra heads.",
            fix="Give the file of the heads, such as medusa_lm_head.safetensors.",
        )
    count = len(found.outputs)
    whole = {*found.outputs} == {*range(count)} >= {*found.blocks}
    if count > MOST_POSITIONS or not whole:
        raise ModelError(f"{name} does not hold all of its heads.", fix="Fetch it again.")
    return found


def converted(name: str, found: Published, path: Path, words: int) -> bytes:
    """The bytes of the heads' file for the model at `path`, with output rows for `words` tokens.

    Raises BadPair, ModelError, BadGGUF.
    """
    model = header.read(path)
    target = heads.File.open(path)
    try:
        key, output = heads.key(target), heads.output(target)
        width = target.tensor("token_embd.weight").width
    except KeyError:
        raise ModelError("Heads are found by their model's last norm; it has none.") from None
    if width % FORMATS["q4_0"].weights:
        raise ModelError("A draft head is for models whose width is a multiple of 32.")
    packing = _Packing(name, width, {model.vocabulary_size, output.outputs}, _words(model, words))
    for place in range(len(found.outputs)):
        packing.add(place, found)
    described: dict[str, str | int | float | bool | list[str] | list[int]] = {
        "general.architecture": heads.KIND,
        "general.name": found.kind,
        heads.KEY: key,
        heads.WORDS: packing.words.tolist(),
        heads.POSITIONS: len(found.outputs),
    }
    return writer.header(described, packing.tensors) + b"".join(
        part + writer.padding(len(part)) for part in packing.data
    )


def _words(model: Header, most: int) -> NDArray[np.int32]:
    """The tokens whose output rows are kept: the first `most` ones, and the end of text.

    A vocabulary numbers its tokens in the order in which they were merged, so the first ones are
    the most frequent.
    """
    end = model.metadata.get("tokenizer.ggml.eos_token_id")
    ends = {end} if isinstance(end, int) and 0 <= end < model.vocabulary_size else set[int]()
    return np.array(sorted({*range(min(most, model.vocabulary_size))} | ends), np.int32)


class _Packing:
    """The tensors of the new file, made of those of the file `name`; each is checked.

    `vocabularies` are the numbers of output rows that the target's heads may have; only the rows
    of the tokens `words` are kept.
    """

    def __init__(
        self, name: str, width: int, vocabularies: set[int], words: NDArray[np.int32]
    ) -> None:
        self.name, self.width, self._vocabularies, self.words = name, width, vocabularies, words
        self.tensors: list[Tensor] = []
        self.data: list[bytes] = []
        self._products = Products(installed())
        self._reads_tokens: bool | None = None

    def add(self, place: int, found: Published) -> None:
        """Add the head of one position. Raises BadPair, ModelError."""
        numbered = sorted(found.blocks.get(place, {}).items())
        for number, (_, block) in enumerate(numbered):
            linear = block.get("linear.weight")
            reads = linear is not None and linear.shape == (self.width, (place + 2) * self.width)
            if not number:
                if self._reads_tokens is not None and reads != self._reads_tokens:
                    raise ModelError(f"{self.name} holds heads of different kinds.")
                self._reads_tokens = reads
            known = self.width * (place + 2 if reads and not number else 1)
            self._linear(block, "linear", f"{place}.{number}.block", (self.width, known))
            if known != self.width:
                self._linear(block, "res_connection", f"{place}.residual", (self.width, known))
        output = {f"output.{part}": each for part, each in found.outputs[place].items()}
        rows = self._shape(output, "output.weight")[0]
        if rows not in self._vocabularies:
            known = min(self._vocabularies)
            raise BadPair(
                f"{self.name} holds heads for {rows} tokens, and the model has {known}.",
                fix=_OWN,
            )
        self._linear(output, "output", f"{place}.output", (rows, self.width), "q4_0")

    def _shape(self, part: Mapping[str, FileTensor], name: str) -> tuple[int, ...]:
        if name not in part:
            raise ModelError(f"{self.name} lacks {name} of a head.", fix="Fetch it again.")
        return part[name].shape

    def _linear(
        self,
        part: Mapping[str, FileTensor],
        name: str,
        put: str,
        shape: tuple[int, int],
        kind: str = "q8_0",
    ) -> None:
        """Add a linear map under the name `put`, and its bias if it has one.

        `shape` is the shape that it has to have: (outputs, inputs). Of a head's output only the
        rows of `words` are kept.
        """
        if (found := self._shape(part, f"{name}.weight")) != shape:
            raise BadPair(
                f"{self.name} is for states of {found[0] if name != 'output' else found[-1]} "
                f"numbers, and the model's have {self.width}.",
                fix=_OWN,
            )
        kept = self.words if name == "output" else np.arange(shape[0])
        matrix = self._floats(part[f"{name}.weight"], name)[kept]
        packed = self._products.quantized(matrix, FORMATS[kind])
        self.tensors.append(Tensor(f"{put}.weight", matrix.shape, kind.upper()))
        self.data.append(packed.data.tobytes())
        if f"{name}.bias" in part:
            if part[f"{name}.bias"].shape != shape[:1]:
                raise ModelError(f"{self.name} has a bias that does not go with its weights.")
            bias = self._floats(part[f"{name}.bias"], name)[kept]
            self.tensors.append(Tensor(f"{put}.bias", bias.shape, "F32"))
            self.data.append(bias.tobytes())

    def _floats(self, tensor: FileTensor, name: str) -> Floats:
        found = tensor.floats()
        if not np.isfinite(found).all():
            raise ModelError(
                f"{self.name} is damaged: a head's {name} holds what is no number.",
                fix="Fetch it again.",
            )
        return found


_OWN = "Convert heads that were made for this very model."


if __name__ == "__main__":
    sys.exit(main())
