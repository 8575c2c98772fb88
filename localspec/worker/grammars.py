"""Compiles the grammars of requests: first in the sandbox, which may crash, then here."""

from __future__ import annotations

import hashlib
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Generic, TypeVar

import msgspec
from llguidance import LLMatcher

from localspec.engine.prefill import QUIET_SECONDS
from localspec.errors import RequestError
from localspec.text import grammar
from localspec.text.constraint import GrammarConstraint, Vocabulary
from localspec.text.grammar import Compiled, Source
from localspec.worker.sandbox import Sandbox, SandboxDied

MOST_RESULTS, MOST_BYTES = 256, 32 << 20
"""The results kept of each kind: a client sends the same schema again and again."""

_Result = TypeVar("_Result", bound="Compiled | RequestError")


class Results(Generic[_Result]):
    """The results used last, by the digest of their sources. Any thread.

    A schema has up to a megabyte, a request has many, and compiled ones are as large: results are
    bounded in bytes too, and sources are not kept.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: OrderedDict[bytes, _Result] = OrderedDict()
        self.bytes = 0
        """The size of all results that are kept."""

    def get(self, *sources: Source) -> _Result | None:
        """The result of these sources; None if none is kept."""
        with self._lock:
            result = self._kept.get(key := _digest(sources))
            if result is not None:
                self._kept.move_to_end(key)
            return result

    def keep(self, result: _Result, *sources: Source) -> None:
        """Keep a result, and drop those not used for longest where there are too many."""
        with self._lock:
            key = _digest(sources)
            if (before := self._kept.pop(key, None)) is not None:
                self.bytes -= _size(before)
            self._kept[key] = result
            self.bytes += _size(result)
            while len(self._kept) > MOST_RESULTS or self.bytes > MOST_BYTES:
                _, dropped = self._kept.popitem(last=False)
                self.bytes -= _size(dropped)


def _digest(sources: Sequence[Source]) -> bytes:
    return hashlib.sha256(msgspec.msgpack.encode(sources)).digest()


def _size(result: Compiled | RequestError) -> int:
    texts = [result.grammar, *result.relaxed] if isinstance(result, Compiled) else [str(result)]
    return sum(map(len, texts))


class VocabularyPreparation:
    """The idle task that builds what the first grammar of a model would wait for.

    All at once, so it begins half a second after the model was `loaded_at`, in seconds of the
    engine's clock: mostly a request is on its way when a load is over.
    """

    def __init__(self, vocabulary: Vocabulary, loaded_at: float) -> None:
        self._vocabulary, self._loaded_at = vocabulary, loaded_at

    def advance(self, now: float) -> bool:
        """Build it; False where that was done before, and where it is too early."""
        return now - self._loaded_at >= QUIET_SECONDS and self._vocabulary.prepare()


class Grammars:
    """Makes the constraints of one model's requests. Model lifetime; any thread.

    Args:
        vocabulary: The model's tokens.
        sandbox: Compiles a grammar first.
    """

    def __init__(self, vocabulary: Vocabulary, sandbox: Sandbox) -> None:
        self._vocabulary = vocabulary
        self._sandbox = sandbox
        self._verdicts: Results[Compiled | RequestError] = Results()
        self._refused: Results[RequestError] = Results()

    def constraint(
        self, response_format: dict[str, Any] | None, typed: str = ""
    ) -> tuple[GrammarConstraint | None, list[str]]:
        """The constraint of a `response_format`, None for plain text, and the relaxed schema keys.

        The answer begins with `typed`, the half-typed word; the format describes what follows.

        Raises RequestError for a type, a schema or a grammar that cannot be served.
        """
        source = grammar.source(response_format)
        if source is None:
            return None, []
        compiled = self._compiled(source)
        whole = grammar.behind(typed, compiled.grammar) if typed else compiled.grammar
        return self._vocabulary.constraint(whole), compiled.relaxed

    def calls(
        self, lark: Callable[[], str], functions: Sequence[dict[str, Any]]
    ) -> GrammarConstraint:
        """The constraint of a grammar with the schemas of these functions' arguments.

        The sandbox compiles all schemas first, in one job: `lark` is made only of those that are
        bounded. Raises RequestError.
        """
        try:
            self._try_all(filter(None, map(_arguments, functions)))
            return self._vocabulary.constraint(LLMatcher.grammar_from_lark(lark()))
        except RequestError as error:
            raise RequestError(
                f"The functions of tools cannot be called by a grammar: {error.message}",
                fix="Simplify their parameters, or leave strict and tool_choice out.",
                param="tools",
            ) from error

    def _try_all(self, sources: Iterable[Source]) -> None:
        """Compile the new sources in one job of the sandbox. Raises RequestError."""
        wanted = tuple(dict.fromkeys(sources))
        if why := self._refused.get(*wanted):
            raise _again(why)
        verdicts = {source: self._verdicts.get(source) for source in wanted}
        for known in verdicts.values():
            if isinstance(known, RequestError):
                raise _again(known)
        unknown = [source for source, verdict in verdicts.items() if verdict is None]
        if not unknown:
            return
        try:
            for source, verdict in zip(unknown, self._sandbox.compile_all(unknown), strict=True):
                self._verdicts.keep(verdict, source)
        except RequestError as error:
            self._refused.keep(_again(error), *wanted)
            raise
        except SandboxDied as died:
            why = grammar.refused(f"it {died}")
            self._refused.keep(_again(why), *wanted)
            raise why from died

    def _compiled(self, source: Source) -> Compiled:
        verdict = self._verdicts.get(source)
        if verdict is None:
            verdict = self._tried(source)
            self._verdicts.keep(verdict, source)
        if isinstance(verdict, RequestError):
            raise _again(verdict)
        return verdict

    def _tried(self, source: Source) -> Compiled | RequestError:
        try:
            return self._sandbox.compile(source)
        except RequestError as error:
            return _again(error)
        except SandboxDied as died:
            return grammar.refused(f"it {died}")


def _again(error: RequestError) -> RequestError:
    """The same error without a traceback, whose frames hold a whole request."""
    return type(error)(error.message, fix=error.fix, param=error.param, details=error.details)


def _arguments(function: dict[str, Any]) -> Source | None:
    """The grammar of a function's arguments. Raises RequestError."""
    return grammar.source({"type": "json_object", "schema": function.get("parameters") or {}})
