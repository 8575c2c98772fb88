"""The results that are kept of grammars are bounded, whatever clients send."""

from __future__ import annotations

import gc
import tracemalloc

import pytest

from localspec.errors import RequestError
from localspec.text.constraint import Vocabulary
from localspec.text.grammar import Compiled, Source
from localspec.worker.grammars import MOST_BYTES, MOST_RESULTS, Grammars, Results
from localspec.worker.sandbox import Sandbox

LARGE = 1 << 20


def source(number: int, size: int = 0) -> Source:
    """One of many."""
    return Source("regex", f"{number}{'a' * size}")


def test_the_latest_results_are_kept_and_few_if_they_are_large() -> None:
    """Those that were used last, up to a number and a size."""
    for size, most in ((1, MOST_RESULTS), (LARGE, MOST_BYTES // LARGE)):
        results: Results[Compiled] = Results()
        for number in range(most + 1):
            results.keep(Compiled("x" * size), source(number))
            assert results.get(source(0)), "it is used all the time"
        assert results.bytes == most * size
        kept = [number for number in range(most + 1) if results.get(source(number))]
        assert kept == [0, *range(2, most + 1)]
        results.keep(Compiled("x"), source(0))
        assert results.bytes == (most - 1) * size + 1


def test_of_a_refused_request_only_the_reason_is_kept() -> None:
    """Neither its schemas nor, in the traceback of the error, the request around them."""
    pieces = [*(bytes([byte]) for byte in range(256)), b""]
    sandbox = Sandbox()
    grammars = Grammars(Vocabulary(pieces, {256}), sandbox)

    def refused(number: int) -> str:
        fields = {"a": {"enum": [str(number) + "x" * (LARGE // 10)]}, "b": {"pattern": "("}}
        with pytest.raises(RequestError, match="cannot be called") as why:
            grammars.calls(lambda: "", [{"parameters": {"properties": fields}}])
        return why.value.message

    before = refused(-1)
    tracemalloc.start()
    for number in range(16):
        assert [refused(number), refused(number)] == [before, before]
    gc.collect()
    kept, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    sandbox.close()
    assert kept < LARGE
