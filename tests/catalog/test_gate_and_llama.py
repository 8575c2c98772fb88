"""What the gate lets through does not kill llama.cpp: mutated models, the real loader, one process.

The gate's rules were completed this way: a file that passes and aborts is a missing rule.
"""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path

from localspec.catalog import header
from localspec.errors import BadGGUF

FILES = 100
CHANGES = (b"\0", b"\1", b"\xff", b"\0\0\0\0", b"\xff\xff\xff\x7f", b"\0\2\0\0", b"\1\2\0\0")
LOADER = """
import sys
from pathlib import Path
from localspec.config import Placement
from localspec.engine.context import Context
from localspec.engine.model import Model
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
