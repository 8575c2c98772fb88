"""Mistakes between tokens and text."""

from __future__ import annotations

from mutants.mutant import Mutant

STOP = "localspec/text/stop.py"
STREAMING = "text/test_stop.py::test_streaming_equals_a_naive_search_of_the_whole_text"

TEXT = [
    Mutant(
        "stop: what may become a stop string is lost",
        STOP,
        "self._held = buffer[released:]",
        'self._held = ""',
        (STREAMING,),
    ),
    Mutant(
        "stop: of stop strings completed at once the shortest is removed",
        STOP,
        "self.found = max(completed, key=len)",
        "self.found = min(completed, key=len)",
        (STREAMING,),
    ),
    Mutant(
        "detokenize: bytes that are no text vanish",
        "localspec/text/detokenize.py",
        'errors="replace"',
        'errors="ignore"',
        (
            (
                "text/test_detokenize.py::"
                "test_any_bytes_become_what_a_decoder_of_the_whole_makes_of_them"
            ),
        ),
    ),
    Mutant(
        "stream: tokens behind a stop string are kept",
        "localspec/text/stream.py",
        "        self.kept += len(tokens)",
        "        self.kept += len(tokens) + self.stopped",
        ("text/test_stream.py::test_after_a_stop_string_the_kept_tokens_are_inside_the_text",),
    ),
    Mutant(
        "stream: text that was held back changes its source",
        "localspec/text/stream.py",
        "                origins.append((chars, head.source))",
        "                origins.append((chars, self._source))",
        ("text/test_stream.py::test_text_held_back_keeps_its_source",),
    ),
    Mutant(
        "grammar: a path that was not taken stays",
        "localspec/text/constraint.py",
        "            self._matcher.rollback(len(self._path) - shared)",
        "            pass",
        ("text/test_constraint.py::test_a_mask_depends_on_the_path_alone",),
    ),
    Mutant(
        "answer: the end of generation is written",
        "localspec/worker/answer.py",
        'if finish == "stop" and index == len(tokens) - 1:',
        'if finish == "stop" and index == len(tokens):',
        ("worker/test_answers.py::test_the_end_token_ends_the_answer_and_writes_nothing",),
    ),
    Mutant(
        "healing: what nothing goes on from is held",
        "localspec/text/healing.py",
        "        if _is_text(end) and words.go_on(end):",
        "        if _is_text(end):",
        ("text/test_healing.py::test_no_beginning_is_a_dead_end",),
    ),
    Mutant(
        "healing: the beginning is held along no draft",
        "localspec/text/healing.py",
        "return None if self._begun or path else self._first",
        "return None if self._begun else self._first",
        ("text/test_healing.py::test_behind_what_was_typed_everything_is_allowed",),
    ),
    Mutant(
        "answer: what was typed is told again",
        "localspec/worker/answer.py",
        "shown = self.prepared.parser.shown.get(token, behind(piece, self._typed))",
        "shown = self.prepared.parser.shown.get(token, piece)",
        ("worker/test_infills.py::test_a_half_typed_word_is_generated_and_not_sent",),
    ),
]
