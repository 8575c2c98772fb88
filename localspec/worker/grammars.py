"""Compiles the grammars of requests: first in the sandbox, which may crash, then here."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from llguidance import LLMatcher

from localspec.errors import RequestError
from localspec.text import grammar
from localspec.text.constraint import GrammarConstraint, Vocabulary
from localspec.text.grammar import Compiled, Source
from localspec.worker.sandbox import Sandbox, SandboxDied

_REMEMBERED = 256
"""Results kept, of at most 100 KB each: a client sends the same schema again and again."""


class Grammars:
    """Makes the constraints of one model's requests. Model lifetime; any thread.

    Args:
        vocabulary: The model's tokens.
        sandbox: Compiles a grammar first.
    """

    def __init__(self, vocabulary: Vocabulary, sandbox: Sandbox) -> None:
        self._vocabulary = vocabulary
        self._sandbox = sandbox
        self._verdicts: OrderedDict[Source, Compiled | RequestError] = OrderedDict()
        self._refused: OrderedDict[tuple[Source, ...], RequestError] = OrderedDict()

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
        if why := self._refused.get(wanted):
            raise why.with_traceback(None)
        unknown = [source for source in wanted if source not in self._verdicts]
        for source in set(wanted).difference(unknown):
            self._compiled(source)
        if not unknown:
            return
        try:
            for source, verdict in zip(unknown, self._sandbox.compile_all(unknown), strict=True):
                self._remember(source, verdict)
        except RequestError as error:
            self._refuse(wanted, error)
            raise
        except SandboxDied as died:
            why = grammar.refused(f"it {died}")
            self._refuse(wanted, why)
            raise why from died

    def _refuse(self, sources: tuple[Source, ...], error: RequestError) -> None:
        self._refused[sources] = error
        if len(self._refused) > _REMEMBERED:
            self._refused.popitem(last=False)

    def _remember(self, source: Source, verdict: Compiled | RequestError) -> None:
        self._verdicts[source] = verdict
        if len(self._verdicts) > _REMEMBERED:
            self._verdicts.popitem(last=False)

    def _compiled(self, source: Source) -> Compiled:
        verdict = self._verdicts.pop(source, None)
        if verdict is None:
            verdict = self._tried(source)
        self._remember(source, verdict)
        if isinstance(verdict, RequestError):
            raise verdict.with_traceback(None)
        return verdict

    def _tried(self, source: Source) -> Compiled | RequestError:
        try:
            return self._sandbox.compile(source)
        except RequestError as error:
            return error
        except SandboxDied as died:
            return grammar.refused(f"it {died}")


def _arguments(function: dict[str, Any]) -> Source | None:
    """The grammar of a function's arguments. Raises RequestError."""
    return grammar.source({"type": "json_object", "schema": function.get("parameters") or {}})
