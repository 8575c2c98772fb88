"""Mistakes of the engine: rows, cells, slots, and failures charged to the wrong session."""

from __future__ import annotations

from mutants.mutant import Mutant

STEP, BATCH = "localspec/engine/step.py", "localspec/engine/batch.py"
VERIFICATION = "localspec/engine/speculation/verification.py"
ACCOUNTING = "localspec/engine/accounting.py"
DRAFTING, SLOTS = "localspec/engine/speculation/drafting.py", "localspec/engine/kv/slots.py"
ROLLBACK, CONTEXT = "localspec/engine/kv/rollback.py", "localspec/engine/llama/context.py"
SHORTLIST = "laws/test_shortlist_law.py::"
STATES = "laws/test_states_law.py::"
TREES = "laws/test_trees_law.py::"
TAPS = "laws/test_taps_law.py::"
SLOT_MEMORY = "localspec/engine/llama/slot_memory.py"
SNAPSHOT_LAW = "laws/test_state_rollback_law.py::"
SNAPSHOTS = SNAPSHOT_LAW + "test_a_snapshot_is_good_once_directly_after_its_forward"
GRAMMAR_FAILS = "laws/test_blast_radius.py::test_a_grammar_that_fails_ends_its_own_request[mask-1]"
LAST_ONE_FAILS = "laws/test_blast_radius.py::test_a_grammar_that_fails_ends_its_own_request[mask-7]"
ALWAYS_RIGHT = "laws/test_drafts_law.py::test_a_draft_model_equal_to_the_target_is_accepted"
CONTEXT_ENDS = "laws/test_lossless.py::test_the_context_ends_an_answer_the_same_way"

CLASSES = "localspec/engine/exactness/classes.py"
FEATURE_HEAD = "laws/test_feature_head_law.py::"

ENGINE = [
    Mutant(
        "feature head: a drafter is shown the state of a round's first row",
        VERIFICATION,
        "            last = verdict.accepted[-1] + 1 if verdict.accepted else 0",
        "            last = 0",
        (FEATURE_HEAD + "test_a_drafter_is_shown_the_state_that_the_last_token_came_of",),
    ),
    Mutant(
        "features: they are copied though nobody follows them",
        VERIFICATION,
        "output.features() if follows else None",
        "output.features()",
        ("engine/test_forward_output.py::test_features_are_copied_for_who_follows_them",),
    ),
    Mutant(
        "taps: layers are taken for one another",
        "localspec/engine/llama/vectors.py",
        "for layer in self._taps.layers\n",
        "for layer in reversed(self._taps.layers)\n",
        (TAPS + "test_states_and_taps_are_those_of_a_context_of_vectors",),
    ),
    Mutant(
        "feature head: another model's head is taken",
        "localspec/worker/heads.py",
        "            if head.parsed.metadata.get(KEY) == wanted:",
        "            if KEY in head.parsed.metadata:",
        (FEATURE_HEAD + "test_a_head_that_does_not_fit_is_left_out",),
    ),
    Mutant(
        "feature head: behind another one's tokens it follows its own",
        "localspec/drafters/feature_head.py",
        " or self.steps[place].token != before",
        "",
        ("drafters/test_feature_head.py::test_it_drafts_behind_another_drafters_tokens",),
    ),
    Mutant(
        "shortlist: what was read last is forgotten first",
        "localspec/engine/llama/shortlist.py",
        "            del self._read[next(iter(self._read))]",
        "            self._read.popitem()",
        (SHORTLIST + "test_the_shortlist_holds_fixed_and_latest_runs",),
    ),
    Mutant(
        "shortlist: words of another language are never listed",
        "localspec/engine/llama/shortlist.py",
        "            self._missed += ",
        "            self._missed = ",
        (SHORTLIST + "test_where_texts_are_of_other_words_all_are_listed",),
    ),
    Mutant(
        "shortlist: it stays for the target's forward",
        "localspec/engine/llama/kernels.py",
        "            shorten(c_int64(0), None, c_int(0))",
        "            pass",
        (SHORTLIST + "test_a_narrow_draft_changes_no_token[greedy]",),
    ),
    Mutant(
        "rollback: rejected cells stay",
        ROLLBACK,
        "            if (wanted := session.cached) < there:",
        "            if (wanted := session.cached) > there:",
        ("laws/test_lossless.py::test_a_request_may_choose_its_drafters_and_its_depth",),
    ),
    Mutant(
        "trees: siblings see each other",
        SLOT_MEMORY,
        "[row.back for row in rows] if self._forks else []",
        "[1 for row in rows] if self._forks else []",
        (TREES + "test_each_node_sees_its_ancestors_alone",),
    ),
    Mutant(
        "trees: losers stay",
        SLOT_MEMORY,
        '            ours.call("keep", None, c_void_p(self._memory), c_int32(slot), c_int32(row))',
        "            pass",
        (TREES + "test_each_node_sees_its_ancestors_alone",),
    ),
    Mutant(
        "trees: each node follows the row before it",
        "localspec/engine/rows.py",
        "[node - parent for node, parent in enumerate(draft.parents)]",
        "[1 for node, parent in enumerate(draft.parents)]",
        (TREES + "test_any_tree_gives_the_tokens_of_plain_decoding",),
    ),
    Mutant(
        "rollback: drafts are verified without a copy of the state",
        ROLLBACK,
        "            if share.nodes > back.get(session.slot, 0) or lasting:",
        "            if lasting:",
        (STATES + "test_a_rejection_reads_no_more_again_than_was_accepted",),
    ),
    Mutant(
        "rollback: a copy outlives the text that it was made of",
        ROLLBACK,
        "if 0 < each.length <= length]",
        "if 0 < each.length]",
        (STATES + "test_drafts_change_no_token",),
    ),
    Mutant(
        "rollback: a state is not brought back",
        SLOT_MEMORY,
        "        self._copies.load(slot, checkpoint.state, STATE_ONLY)\n        return",
        "        return",
        (STATES + "test_drafts_change_no_token",),
    ),
    Mutant(
        "rollback: snapshots outlive a forward that moves states",
        ROLLBACK,
        "            self._back.clear()",
        "            pass",
        (SNAPSHOT_LAW + "test_other_sessions_forwards_do_not_change_what_comes_back",),
    ),
    Mutant(
        "rollback: a snapshot is good twice",
        ROLLBACK,
        "        del self._back[slot]",
        "        assert self._back[slot]",
        (SNAPSHOTS,),
    ),
    Mutant(
        "rollback: every row of a forward leaves a snapshot, the first one too",
        "localspec/control/forwards.py",
        "back |= {slot: min(count - 1, snapshots)",
        "back |= {slot: min(count, snapshots)",
        (SNAPSHOTS,),
    ),
    Mutant(
        "verification: a failing grammar is the engine's end",
        VERIFICATION,
        "        except Exception as error:",
        "        except ArithmeticError as error:",
        (GRAMMAR_FAILS,),
    ),
    Mutant(
        "verification: another session's rows are taken for one's own",
        VERIFICATION,
        "row += share.rows - wanted",
        "row += share.rows",
        (
            (
                "laws/test_lossless.py::"
                "test_prompts_that_are_read_in_one_forward_have_answers_of_their_own"
            ),
        ),
    ),
    Mutant(
        "verification: drafters do not hear what was said",
        VERIFICATION,
        "            session.untold.append(partial(self._drafting.commit, session, tuple(tokens), "
        "lasting))",
        "            pass",
        (ALWAYS_RIGHT,),
    ),
    Mutant(
        "rows: logits of a class have any number of rows",
        "localspec/engine/rows.py",
        "return (share.tail - 1) // multiple * multiple",
        "return share.tail - 1",
        (
            (
                "engine/test_exactness.py::"
                "test_a_replay_has_the_logits_of_the_answer[few rows differ]"
            ),
        ),
    ),
    Mutant(
        "step: a request that cannot begin keeps its slot",
        STEP,
        "            self.release_slot(index, client, [])\n            raise",
        "            raise",
        ("laws/test_blast_radius.py::test_a_request_that_cannot_begin_gives_its_slot_back",),
    ),
    Mutant(
        "step: a round that failed teaches",
        ACCOUNTING,
        "    if took.read or not proposals.views or not whole:",
        "    if took.read or not proposals.views:",
        ("laws/test_blast_radius.py::test_a_failed_round_is_not_an_observation",),
    ),
    Mutant(
        "step: rounds that read a prompt teach the stairs",
        ACCOUNTING,
        "    if took.read or not proposals.views",
        "    if not proposals.views",
        ("laws/test_head_training_law.py::test_a_round_that_read_a_prompt_teaches_nothing",),
    ),
    Mutant(
        "step: drafts go beyond what was probed",
        STEP,
        "min(self.context, self.shape.cells),",
        "self.context,",
        (
            (
                "engine/test_exactness.py::"
                "test_drafts_are_accepted_across_borders_and_end_where_the_probe_did"
            ),
        ),
    ),
    Mutant(
        "step: padding stays in the cache",
        ROLLBACK,
        "        held[-1] += padding",
        "        held[-1] += 0",
        ("laws/test_forwards_law.py::test_rows_that_only_fill_a_forward_change_no_token",),
    ),
    Mutant(
        "step: padding runs over the end of the context",
        BATCH,
        "        if more > room:",
        "        if more > room + 64:",
        (("laws/test_forwards_law.py::test_padding_rows_cost_no_token_at_the_end_of_the_context"),),
    ),
    Mutant(
        "step: the context has no place for the padding of a class",
        STEP,
        "return self.target.context - self.shape.multiple + 1",
        "return self.target.context",
        ("engine/test_exactness.py::test_an_answer_ends_before_its_padding_has_no_cells",),
    ),
    Mutant(
        "drafting: one request's grammar costs all their draft model",
        DRAFTING,
        """        if len(requests) == 1:
            with self._optional(name, sessions):
                return self._checked(name, requests)
            return [Draft()]""",
        """        if requests:
            with self._optional(name, sessions):
                return self._checked(name, requests)
            return [Draft() for _ in requests]""",
        (LAST_ONE_FAILS,),
    ),
    Mutant(
        "drafting: what was said on another worker is not told",
        DRAFTING,
        "            self.commit(session, request.so_far)",
        "            pass",
        (ALWAYS_RIGHT,),
    ),
    Mutant(
        "drafting: what a drafter says is not looked at",
        DRAFTING,
        "        if not sane:",
        "        if sane is None:",
        ("laws/test_lossless.py::test_a_broken_drafter_changes_no_token",),
    ),
    Mutant(
        "drafting: no place is kept for the bonus",
        DRAFTING,
        "room = context - len(session.tokens) - 1",
        "room = context - len(session.tokens) + 1",
        (CONTEXT_ENDS,),
    ),
    Mutant(
        "drafting: a request's own depth is ignored",
        DRAFTING,
        "most = self._max_draft if wish.max_draft is None else wish.max_draft",
        "most = self._max_draft",
        ("laws/test_lossless.py::test_a_request_may_choose_its_drafters_and_its_depth",),
    ),
    Mutant(
        "slots: one client's prefix serves another",
        SLOTS,
        "        mine = slot.client == client",
        "        mine = True",
        ("laws/test_lossless.py::test_another_client_reuses_nothing",),
    ),
    Mutant(
        "slots: the last token of a prompt is not read again",
        SLOTS,
        "common_prefix(slot.tokens, prompt[:-1])",
        "common_prefix(slot.tokens, prompt)",
        ("engine/test_slots.py::test_the_best_free_slot_is_chosen",),
    ),
    Mutant(
        "slots: the oldest session may wait",
        SLOTS,
        "if not chosen or need <= cells:",
        "if need <= cells:",
        ("engine/test_kv_admission.py::test_the_oldest_session_always_fits",),
    ),
    Mutant(
        "cells: a cache grows to less than it needs",
        "localspec/engine/kv/cells.py",
        "        while size < needed:",
        "        while 2 * size < needed:",
        ("engine/test_kv_admission.py::test_sizes_are_multiples_within_the_limits",),
    ),
    Mutant(
        "scheduler: a forward reaches over its block by one row",
        "localspec/engine/scheduler.py",
        "- multiple - start + 1",
        "- multiple - start + 2",
        (
            (
                "engine/test_scheduler.py::"
                "test_rows_that_have_room_end_in_the_block_where_each_would_end_alone"
            ),
        ),
    ),
    Mutant(
        "scheduler: a chunk holds streams up for a second",
        "localspec/engine/scheduler.py",
        "CANCEL_SECONDS if alone else STALL_SECONDS",
        "CANCEL_SECONDS if alone else CANCEL_SECONDS",
        ("engine/test_scheduler.py::test_a_chunk_of_prefill_is_bounded_in_time",),
    ),
    Mutant(
        "scheduler: a draft's rows are taken for a prompt's",
        "localspec/engine/scheduler.py",
        "                each = min(each, longer / more)",
        "                each = longer / prefill",
        ("engine/test_scheduler.py::test_a_draft_beside_it_makes_no_prompt_wait",),
    ),
    Mutant(
        "states: a copy stands before the last question alone",
        "localspec/worker/preparation.py",
        "for at in (asked[-1], len(messages) - 1)}",
        "for at in (asked[-1],)}",
        ("laws/test_reading_law.py::test_what_a_tool_said_last_is_edited_alone",),
    ),
    Mutant(
        "scheduler: the last rows of a prompt are taken to cost what many do",
        "localspec/engine/scheduler.py",
        "if rows <= waiting and (count >= rows or latest)",
        "if count >= rows or latest",
        (
            (
                "engine/test_scheduler.py::"
                "test_beside_a_stream_a_prompt_has_the_chunks_whose_rows_take_least"
            ),
        ),
    ),
    Mutant(
        "step: rows stand in the order in which requests came",
        BATCH,
        "        going, shares = by_slot(list(sessions), shares)\n",
        "        going = list(sessions)\n",
        (
            (
                "engine/test_forwards.py::test_adjacent_slots_share_a_forward_in_any_order_of_arrival[streams]"
            ),
        ),
    ),
    Mutant(
        "classes: one slot stands for all",
        CLASSES,
        "mine = slots if line == min(BORDER, lines[0]) else slots[:1]",
        "mine = slots[:1]",
        ("engine/test_exactness.py::test_one_slot_that_differs_is_seen",),
    ),
    Mutant(
        "classes: slots at different places are not tried together",
        CLASSES,
        "zip(others, itertools.cycle(nearer), strict=False)",
        "zip(others, (), strict=False)",
        ("engine/test_exactness.py::test_slots_at_different_places_are_tried_together_at_load",),
    ),
    Mutant(
        "classes: one that fails far from the beginning reaches there",
        CLASSES,
        "EVERYWHERE if whole_context else line) if agreed else None",
        "EVERYWHERE if whole_context else line)",
        ("engine/test_exactness.py::test_far_texts_are_probed_later_and_limit_the_claim",),
    ),
    Mutant(
        "batch cost: slots with memories of their own share any forward",
        "localspec/control/batch_cost.py",
        "        made = forwards(dict(enumerate(rows)), self.layout, self.costs.snapshots)",
        "        made = [sum(rows)]",
        ("control/test_sharing.py::test_a_draft_beside_others_is_a_forward_more",),
    ),
    Mutant(
        "drafting: a long prompt is indexed in one go",
        DRAFTING,
        "                    left -= drafter.read(opened, left)",
        "                    drafter.read(opened, opened.pending)",
        ("laws/test_indexing_law.py::test_a_step_indexes_a_bounded_part_of_all_prompts_together",),
    ),
    Mutant(
        "context: a prompt makes its cache grow when it has filled it",
        CONTEXT,
        "            self._grow(foreseen)  # once, while there is little to take over",
        "            pass",
        (
            (
                "engine/test_kv_admission.py::"
                "test_a_long_prompt_makes_its_cache_grow_once_and_before_it_is_read[False]"
            ),
        ),
    ),
]
