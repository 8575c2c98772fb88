"""Mistakes of the drafters: their memory, and false repetitions."""

from __future__ import annotations

from mutants.mutant import Mutant

MODEL, LOOKUP = "localspec/drafters/model.py", "localspec/drafters/lookup.py"
OCCURRENCES = "localspec/drafters/_occurrences.py"
READ_ANEW = "laws/test_drafts_law.py::test_drafts_equal_those_of_a_drafter_that_reads_the_text_anew"
GUESSES = (
    "laws/test_guesses_law.py::test_a_right_guess_saves_forwards_and_a_wrong_one_changes_nothing"
)
GAPS, WHOLE = (
    f"laws/test_gaps_law.py::test_{law}"
    for law in (
        "drafts_behind_a_gap_equal_those_of_the_text_without_it",
        "noise_and_penalties_are_those_of_the_whole_text",
    )
)
EDITS = "localspec/drafters/_edits.py"
SEARCH = "drafters/test_lookup_occurrences.py::test_search_equals_brute_force"

DRAFTS = [
    Mutant(
        "model: a rejected token's cell counts as text",
        MODEL,
        "and self.held[at] == token:",
        "and self.held:",
        (READ_ANEW,),
    ),
    Mutant(
        "model: another source's nodes count as read",
        MODEL,
        "keep += common_prefix(held[keep:], chain.request.prefix.tokens)",
        "keep += len(chain.request.prefix.tokens)",
        (READ_ANEW,),
    ),
    Mutant(
        "model: drafts do not see their own path",
        MODEL,
        "path = [*request.prefix.tokens, *chain.tokens]",
        "path = [*chain.tokens]",
        (READ_ANEW,),
    ),
    Mutant(
        "model: what a text begins with is skipped",
        MODEL,
        "        start = max(self.agreed, SINKS)",
        "        start = self.agreed",
        (GAPS,),
    ),
    Mutant(
        "model: what follows a gap is not read",
        MODEL,
        "            self.seen.append(token)",
        "            self.seen += [token] * (not self.skipped)",
        (GAPS,),
    ),
    Mutant(
        "model: noise is that of what was seen",
        MODEL,
        "position = len(chain.session.tokens) + len(path)",
        "position = len(chain.session.seen) + len(path)",
        (WHOLE,),
    ),
    Mutant(
        "model: penalties are those of what was seen",
        MODEL,
        "recent = chain.session.tokens[-back:]",
        "recent = chain.session.seen[-back:]",
        (WHOLE,),
    ),
    Mutant(
        "model: cells of an old draft stay",
        MODEL,
        "        if keep < len(held):",
        "        if keep < len(held) - 1:",
        (READ_ANEW,),
    ),
    Mutant(
        "model: false guesses stay in the cache",
        MODEL,
        "        if before < len(session.held):",
        "        if before < 0:",
        (GUESSES,),
    ),
    Mutant(
        "model: a wrong guess is drafted on",
        MODEL,
        "            if ended or token != guess:",
        "            if ended:",
        (GUESSES,),
    ),
    Mutant(
        "model: a failed forward leaves a memory of what was not read",
        MODEL,
        "                chain.session.forget()",
        "                pass",
        ("laws/test_drafts_law.py::test_after_a_failed_forward_the_next_draft_is_read_anew",),
    ),
    Mutant(
        "lookup: a copy runs from the prediction into the prompt",
        LOOKUP,
        "            if token == _END or not request.worth(signals):",
        "            if not request.worth(signals):",
        (
            (
                "drafters/test_lookup_prediction.py::"
                "test_predicted_nodes_are_pieces_of_the_prediction"
            ),
        ),
    ),
    Mutant(
        "lookup: a copy goes on behind the end of a message",
        LOOKUP,
        "            if kind is Kind.CONTROL:",
        "            if kind is None:",
        ("drafters/test_lookup_joints.py::test_no_copy_goes_on_behind_the_end_of_a_message",),
    ),
    Mutant(
        "lookup: the budget is not kept",
        LOOKUP,
        "        for depth in range(request.budget):",
        "        for depth in range(request.budget + 1):",
        ("drafters/test_lookup.py::test_drafts_are_of_tokens_seen_before",),
    ),
    Mutant(
        "occurrences: the shortest match comes first",
        OCCURRENCES,
        "found.sort(key=_by_length, reverse=True)",
        "found.sort(key=_by_length)",
        (SEARCH,),
    ),
    Mutant(
        "occurrences: the end of a text is found in itself",
        OCCURRENCES,
        "            block = level.earlier[-1] if level.earlier else -1",
        "            block = len(level.earlier) - 1",
        (SEARCH,),
    ),
    Mutant(
        "occurrences: a name of one half is a name of both",
        OCCURRENCES,
        "level.extend((a << _SHIFT) | b for a, b in zip(left, right, strict=False))",
        "level.extend(a for a, b in zip(left, right, strict=False))",
        (SEARCH,),
    ),
    Mutant(
        "edits: the oldest edit of a place is expected",
        EDITS,
        "in reversed(self._known.get(text[position], ())):",
        "in self._known.get(text[position], ()):",
        ("drafters/test_lookup_edits.py::test_what_counts_as_an_edit",),
    ),
    Mutant(
        "edits: what changes nothing is an edit",
        EDITS,
        "return None if edit.old == edit.new else edit",
        "return edit",
        ("drafters/test_lookup_edits.py::test_what_counts_as_an_edit",),
    ),
    Mutant(
        "edits: behind one the copy goes on by what was written",
        EDITS,
        "            self.position += len(self.edit.old)",
        "            self.position += len(self.edit.new)",
        ("drafters/test_lookup_edits.py::test_an_edit_is_made_again",),
    ),
    Mutant(
        "asking: what was prepared is taken for any outcome",
        "localspec/engine/speculation/asking.py",
        "        came = self.foretold in {None, tuple(outcome.advance.tokens)}",
        "        came = True",
        ("laws/test_overlap_law.py::test_a_copy_that_goes_on_is_drafted_without_asking",),
    ),
    Mutant(
        "asking: a copy that goes on is not prepared",
        "localspec/engine/speculation/asking.py",
        "        if proposals.drafted or not self._prepare_copy(",
        "        if True or not self._prepare_copy(",
        ("laws/test_overlap_law.py::test_a_copy_that_goes_on_is_drafted_without_asking",),
    ),
    Mutant(
        "overlap: drafts of rejection sampling are continued too",
        "localspec/engine/speculation/continuation.py",
        'speculation.verify == "coupled"',
        'speculation.verify != ""',
        ("laws/test_continuation_law.py::test_rejection_sampling_continues_nothing",),
    ),
    Mutant(
        "overlap: to slow the target down costs nothing",
        "localspec/control/overlap.py",
        "cost = late + self.contention * forwards * self.step",
        "cost = late",
        ("control/test_overlap.py::test_where_a_device_is_shared_it_is_tried_and_left",),
    ),
    Mutant(
        "overlap: on a processor sessions are calm as well",
        "localspec/engine/step.py",
        "outcomes, waits=self.waits)",
        "outcomes, waits=not self.waits)",
        ("laws/test_overlap_law.py::test_on_a_cpu_drafters_run_in_every_round",),
    ),
]
