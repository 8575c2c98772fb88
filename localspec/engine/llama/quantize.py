"""Requantizes models and measures how fast they decode, for the choice of a draft model."""

from __future__ import annotations

import ctypes
import time
from pathlib import Path

import numpy as np

from localspec.config import Placement
from localspec.engine.llama.context import Context
from localspec.engine.llama.cores import performance_cores
from localspec.engine.llama.library import log, native
from localspec.engine.llama.model import Model
from localspec.errors import ModelError
from localspec.types import Row

_FTYPES = {"q4_0": 2, "q4_1": 3, "q8_0": 7}  # llama_ftype


def quantize(source: Path, destination: Path, *, kind: str, threads: int = 0) -> None:
    """Requantize every matrix of `source` to `kind` (llama_model_quantize, pure).

    Raises:
        ModelError: unknown kind, or llama.cpp refused.
    """
    if kind not in _FTYPES:
        raise ModelError(f"{kind} is not one of {', '.join(_FTYPES)}.")
    params = native.llama_model_quantize_default_params()
    params.ftype = _FTYPES[kind]
    params.pure = True
    params.allow_requantize = True
    params.nthread = threads or performance_cores()
    code = native.llama_model_quantize(
        str(source).encode(), str(destination).encode(), ctypes.byref(params)
    )
    if code != 0:
        raise ModelError(f"{source.name} could not be quantized: {log.why()}.")


def measure_decode(path: Path, *, threads: int = 0, tokens: int = 24) -> float:
    """Tokens per second when a model decodes one row at a time: the median of `tokens` steps.

    Raises:
        ModelError: the file cannot be loaded.
    """
    model = Model.load(path)
    try:
        context = Context.open(model, Placement(threads=threads), slots=1, context=256, rows=16)
        try:
            spans = []
            for position in range(tokens):
                begin = time.perf_counter()
                context.decode([Row(position % model.n_vocab, position, 0, wants_logits=True)])
                spans.append(time.perf_counter() - begin)
        finally:
            context.close()
    finally:
        model.close()
    return 1 / float(np.median(spans[2:]))
