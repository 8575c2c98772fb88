"""Measures the time of a feature head's token on this host, with a head of random weights."""

from __future__ import annotations

import statistics
import time

import numpy as np

from localspec.built import installed
from localspec.engine.llama.products import FORMATS, Products, Stored
from localspec.engine.speculation.head import Head, HeadMaps

_WORDS = 4096
_ASKED = 200
_ALIGNED_BYTES = 64
_KIND = FORMATS["q4_0"]


def token_ms(width: int, threads: int) -> float | None:
    """Milliseconds of a head's token for states of `width`; None if they make no whole blocks.

    The weights stay in the caches, because nothing else runs: so it is beside a target on a device.
    """
    if width % _KIND.weights:
        return None
    products = Products(installed(), threads=threads)
    square, words = (_random(products, width, outputs) for outputs in (width, _WORDS))
    maps = HeadMaps(square, square, np.zeros(width, np.float32), np.arange(_WORDS, dtype=np.int32))
    head = Head(products, maps, words, words)
    state = np.random.default_rng(0).standard_normal(width).astype(np.float32)
    spans = []
    for asked in range(_ASKED):
        began = time.perf_counter()
        head.predict(state, asked)
        spans.append(time.perf_counter() - began)
    head.close()
    return 1000 * statistics.median(spans)


def _random(products: Products, width: int, outputs: int) -> Stored:
    """Random weights, aligned so that native code can use them in place."""
    numbers = np.random.default_rng(width + outputs).standard_normal((outputs, width))
    made = products.quantized((numbers / width**0.5).astype(np.float32), _KIND)
    memory = np.empty(made.data.nbytes + _ALIGNED_BYTES, np.uint8)
    start = -memory.ctypes.data % _ALIGNED_BYTES
    data = memory[start : start + made.data.nbytes].reshape(made.data.shape)
    data[...] = made.data
    return made._replace(data=data)
