"""Grammars of requests: compiled first where that may crash, then here."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

from llguidance import LLMatcher

from localspec.errors import RequestError
from localspec.text import grammar
from localspec.text.constraint import GrammarConstraint, Vocabulary
from localspec.text.grammar import Compiled, Source
from localspec.worker.sandbox import Died, Sandbox

_REMEMBERED = 64
"""Verdicts, of at most a hundred kilobytes each. A client sends the same schema again and again."""


class Grammars:
    """Makes the constraints of one model's requests. Model lifetime; any thread.

    Args:
        vocabulary: The model's tokens.
        sandbox: Where a grammar is tried first.
    """

    def __init__(self, vocabulary: Vocabulary, sandbox: Sandbox) -> None:
        self._vocabulary = vocabulary
        self._sandbox = sandbox
        self._verdicts: OrderedDict[Source, Compiled | RequestError] = OrderedDict()

    def constraint(
        self, response_format: dict[str, Any] | None, typed: str = ""
    ) -> tuple[GrammarConstraint | None, list[str]]:
        """What `response_format` asks for, None for plain text, and the keys that are not kept.

        It describes what comes behind what was `typed`, with which the answer begins.

        Raises RequestError for a type, a schema or a grammar that cannot be served.
        """
        source = grammar.source(response_format)
        if source is None:
            return None, []
        compiled = self._compiled(source)
        whole = grammar.behind(typed, compiled.grammar) if typed else compiled.grammar
        return self._vocabulary.constraint(whole), compiled.relaxed

    def calls(self, lark: str, functions: Sequence[dict[str, Any]]) -> GrammarConstraint:
        """The constraint of a grammar that holds the schemas of these functions' arguments.

        Each schema is tried alone, where it may do harm. Raises RequestError.
        """
        try:
            for function in functions:
                wanted = {"type": "json_object", "schema": function.get("parameters") or {}}
                if source := grammar.source(wanted):
                    self._compiled(source)
            return self._vocabulary.constraint(LLMatcher.grammar_from_lark(lark))
        except RequestError as error:
            raise RequestError(
                f"The functions of tools cannot be called by a grammar: {error.message}",
                fix="Simplify their parameters, or leave strict and tool_choice out.",
                param="tools",
            ) from error

    def _compiled(self, source: Source) -> Compiled:
        verdict = self._verdicts.pop(source, None)
        if verdict is None:
            verdict = self._tried(source)
        self._verdicts[source] = verdict
        if len(self._verdicts) > _REMEMBERED:
            self._verdicts.popitem(last=False)
        if isinstance(verdict, RequestError):
            raise verdict.with_traceback(None)
        return verdict

    def _tried(self, source: Source) -> Compiled | RequestError:
        try:
            return self._sandbox.compile(source)
        except RequestError as error:
            return error
        except Died as died:
            return grammar.refused(f"it {died}")
