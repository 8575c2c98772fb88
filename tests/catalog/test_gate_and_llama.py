"""Files that pass the header checks do not kill llama.cpp: mutated models, the real loader.

The rules were completed this way: a file that passes and aborts is a missing rule.
"""

from __future__ import annotations

import random
import struct
import subprocess
import sys
from pathlib import Path

from localspec.catalog import header, reader, writer
from localspec.catalog.reader import ARRAY, FORMATS
from localspec.errors import BadGGUF

FILES = 100
CHANGES = (b"\0", b"\1", b"\xff", b"\0\0\0\0", b"\xff\xff\xff\x7f", b"\0\2\0\0", b"\1\2\0\0")
LOADER = """
import sys
from pathlib import Path
from localspec.config import Placement
from localspec.engine.llama.context import Context
from localspec.engine.llama.model import Model
from localspec.errors import LocalSpecError
from localspec.types import Row
for line in sys.stdin:
    try:
        model = Model.load(Path(line.strip()))
        context = Context.open(model, Placement(threads=1), slots=1, context=64, rows=16)
        context.decode([Row(0, 0, 0, True)])
        context.close()
        model.close()
        print("loaded")
    except LocalSpecError as error:
        print("refused")
"""


INTEGERS = [kind for kind, form in FORMATS.items() if form in "BbHhIi?Qq"]
"""Every GGUF type of whole numbers, booleans among them."""
KEYS = {
    "block_count": 2,
    "context_length": 4096,
    "embedding_length": 64,
    "feed_forward_length": 128,
    "attention.head_count": 4,
    "attention.head_count_kv": 2,
    "attention.key_length": 16,
    "rope.dimension_count": 16,
    "expert_count": 0,
    "expert_used_count": 0,
    "expert_group_count": 0,
    "nextn_predict_layers": 0,
}


def _retyped(whole: bytes, path: Path, key: str, value: bytes) -> Path:
    """A copy of a model in which the value of one key has another type."""
    parsed = reader.parse(whole, len(whole))
    values = {
        name: writer.packed(kept, parsed.kinds[name]) for name, kept in parsed.metadata.items()
    }
    values[f"llama.{key}"] = value
    tensors = [writer.Tensor(t.name, t.shape[::-1], t.type.name) for t in parsed.tensors]
    path.write_bytes(writer.assemble(values, tensors) + whole[parsed.data_start :])
    return path


def test_numbers_of_every_type_that_llama_cpp_takes_pass_the_gate(
    tiny_path: Path, tmp_path: Path
) -> None:
    """Whole numbers of any type pass, as one number, one per layer, and booleans in arrays."""
    whole, files = tiny_path.read_bytes(), []
    for key, number in KEYS.items():
        for kind in INTEGERS:
            form = FORMATS[kind]
            if number >= 1 << 7 and form in "Bb":
                continue
            one = struct.pack(f"<I{form}", kind, number)
            many = struct.pack(f"<IIQ2{form}", ARRAY, kind, 2, number, number)
            for shape, value in (("one", one), ("many", many)):
                name = f"{key}-{form if form != '?' else 'bool'}-{kind}-{shape}.gguf"
                files.append(_retyped(whole, tmp_path / name, key, value))
    done = subprocess.run(
        [sys.executable, "-P", "-c", LOADER],
        input="\n".join(map(str, files)),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    verdicts = dict(zip(files, done.stdout.splitlines(), strict=True))
    assert sum(verdict == "loaded" for verdict in verdicts.values()) >= len(KEYS)
    for file, verdict in verdicts.items():
        if verdict == "loaded":
            header.read(file)  # a file that loads is never refused


def test_no_mutated_model_that_passes_the_gate_kills_the_loader(
    tiny_path: Path, tmp_path: Path
) -> None:
    """Each accepted file is loaded and decoded once, or refused with an error; none aborts."""
    whole = tiny_path.read_bytes()
    chance = random.Random(20)  # noqa: S311 - a corpus that is the same each time
    texts = range(whole.index(b"tokenizer.ggml.tokens"), whole.index(b"tokenizer.ggml.merges"))
    spots = [spot for spot in range(24, whole.index(b"blk.1.ffn_down")) if spot not in texts]
    accepted: list[Path] = []
    while len(accepted) < FILES:
        content = bytearray(whole)
        for _ in range(chance.choice((1, 1, 2))):
            spot, change = chance.choice(spots), chance.choice((*CHANGES, chance.randbytes(1)))
            content[spot : spot + len(change)] = change
        path = tmp_path / f"{len(accepted)}.gguf"
        path.write_bytes(content)
        try:
            header.read(path)
        except BadGGUF:
            continue
        accepted.append(path)
    done = subprocess.run(
        [sys.executable, "-P", "-c", LOADER],
        input="\n".join(map(str, accepted)),
        capture_output=True,
        text=True,
        check=False,
    )
    verdicts = done.stdout.splitlines()
    assert done.returncode == 0, f"{accepted[len(verdicts)].name}: {done.stderr[-2000:]}"
    assert len(verdicts) == FILES
    assert set(verdicts) == {"loaded", "refused"}
