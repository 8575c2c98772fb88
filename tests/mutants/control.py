"""Mistakes of the policy: its estimates, its risks, its choices."""

from __future__ import annotations

from mutants.mutant import Mutant

ACCEPTANCE, GUARD = "localspec/control/acceptance.py", "localspec/control/regret.py"
FEEDBACK = "localspec/control/feedback.py"
ROUTING, CONTROLLER = "localspec/engine/routing.py", "localspec/control/controller.py"
WEIGHING = "localspec/control/weighing.py"
CUTTING, THREADS = "localspec/control/cutting.py", "localspec/engine/llama/thread_count.py"
REGRET = "control/test_controller_regret.py::"
ORDER = "control/test_sharing.py::test_whose_rows_are_whose_does_not_depend_on_their_order"

CONTROL = [
    Mutant(
        "acceptance bias: a copy that broke is believed as before",
        "localspec/control/round.py",
        "        return 1 + max(0.0, self.copies.doubt)",
        "        return 1.0",
        ("control/test_acceptance_bias.py::test_copies_that_break_at_once_are_soon_left",),
    ),
    Mutant(
        "acceptance bias: rows are carried for promises that are not kept",
        FEEDBACK,
        "stats.copies.kept / rate",
        "1 / rate",
        ("control/test_acceptance_bias.py::test_no_row_is_carried_for_what_only_promises",),
    ),
    Mutant(
        "acceptance bias: a new answer knows nothing of those before it",
        CONTROLLER,
        "        return SessionStats.after(self.feedback.copies, self.feedback.expected_saving)",
        "        return SessionStats()",
        (
            "control/test_acceptance_bias.py::test_the_next_answer_begins_with_what_the_last_one_showed",
        ),
    ),
    Mutant(
        "changes: rows repay nothing in later rounds",
        "localspec/control/batch_cost.py",
        "            return CAUTION * (going - self.repays[level - 1])",
        "            pass",
        (REGRET + "test_small_drafts_together_repay_a_change_that_none_repays",),
    ),
    Mutant(
        "guard: a round that was held up is all the drafts' loss",
        FEEDBACK,
        "        seconds = min(seconds, max(most, self.outliers.repeats) * one_seconds)",
        "        pass",
        ("control/test_feedback.py::test_a_round_that_was_held_up_forbids_nothing",),
    ),
    Mutant(
        "asking: what brings nothing is asked every time",
        "localspec/control/round.py",
        "self.saving_seconds < takes_seconds and",
        "False and",
        ("control/test_slow_sources.py::test_what_brings_nothing_is_asked_every_eighth_time",),
    ),
    Mutant(
        "asking: what took time counts as plain decoding",
        FEEDBACK,
        "self.baseline.measured(seconds - asking_seconds, plain_forwards)",
        "self.baseline.measured(seconds, plain_forwards)",
        ("control/test_feedback.py::test_asking_in_vain_is_a_loss_and_no_part_of_plain_decoding",),
    ),
    Mutant(
        "asking: on a simulated machine a head takes no time",
        "localspec/engine/simulation.py",
        "        self._clock.charge(self._token_ms)",
        "        pass",
        ("laws/test_simulation_law.py::test_the_clock_is_the_sum_of_the_tables_times",),
    ),
    Mutant(
        "costs: attention is counted once instead of for each row",
        "localspec/control/batch_cost.py",
        "- now + extra * row for",
        "- now + (extra > 0) * row for",
        ("control/test_batch_cost.py::test_each_row_looks_back_on_the_whole_text",),
    ),
    Mutant(
        "costs: a round is learned as if one row of each draft looked back",
        FEEDBACK,
        "(self.multiple + batch_cost.extra_rows(len(judged.draft))) * view.cells",
        "self.multiple * view.cells",
        ("control/test_feedback.py::test_each_row_of_a_round_looks_back",),
    ),
    Mutant(
        "costs: stairs are not learned",
        "localspec/control/staircase.py",
        "        self.beliefs.measured(slopes, surprise)",
        "        self.beliefs.measured(slopes, 0.0)",
        ("control/test_costs.py::test_any_staircase_is_learned_from_noisy_measurements",),
    ),
    Mutant(
        "costs: a damaged profile is believed",
        "localspec/control/staircase.py",
        "    if not math.isfinite(number):",
        "    if number is None:",
        ("control/test_costs.py::test_a_damaged_profile_is_refused",),
    ),
    Mutant(
        "acceptance: each node survives by itself",
        ACCEPTANCE,
        "            alive *= self.estimate(signal, local)",
        "            alive = self.estimate(signal, local)",
        ("control/test_acceptance.py::test_estimates_are_probabilities_and_survival_never_rises",),
    ),
    Mutant(
        "acceptance: nothing is forgotten",
        ACCEPTANCE,
        "    kept = _MEMORY**weight",
        "    kept = 1.0",
        ("control/test_acceptance.py::test_what_was_true_long_ago_is_forgotten",),
    ),
    Mutant(
        "acceptance: a long copy speaks for the model",
        ACCEPTANCE,
        "        share = 1 / (1 + observed / _HEARD)",
        "        share = 1.0",
        ("control/test_acceptance.py::test_one_long_copy_does_not_speak_for_the_model",),
    ),
    Mutant(
        "guard: gains are credit without end",
        GUARD,
        "self.balance = min(ALLOWANCE / 2, self.balance + tokens - spent)",
        "self.balance = self.balance + tokens - spent",
        ("control/test_regret.py::test_an_account_never_has_more_than_its_credit",),
    ),
    Mutant(
        "guard: what an answer lost is forgotten",
        GUARD,
        "REGRET_SHARE * time - self.behind_seconds",
        "REGRET_SHARE * time",
        ("control/test_regret.py::test_what_is_left_to_lose_keeps_an_answer_within_its_bound",),
    ),
    Mutant(
        "guard: one suspended round is the new pace",
        GUARD,
        "        return max(least - _AGREES, min(most + _AGREES, surprise))",
        "        return surprise",
        ("control/test_regret.py::test_the_pace_follows_a_throttled_machine_and_no_outlier",),
    ),
    Mutant(
        "routing: hot requests are refused before anything is known",
        ROUTING,
        "if hot and facts.acceptance is not None and",
        "if hot or facts.acceptance is not None and",
        ("engine/test_routing.py::test_each_fact_leads_to_its_reason",),
    ),
    Mutant(
        "routing: answers that were shorter speak too",
        ROUTING,
        "for tokens in self.answers if tokens > n_output]",
        "for tokens in self.answers]",
        ("engine/test_routing.py::test_an_answer_is_expected_to_go_on_as_those_before_it_did",),
    ),
    Mutant(
        "controller: rows that others will take are free",
        CONTROLLER,
        "            needs[place] += batch_cost.extra_rows(option.nodes)",
        "            pass",
        ("control/test_sharing.py::test_nobody_drafts_for_rows_that_others_will_take",),
    ),
    Mutant(
        "cutting: the rows of a draft cost nothing",
        CUTTING,
        "            rows.append(batch_cost.multiple + extra)",
        "            rows.append(batch_cost.multiple)",
        (("control/test_controller.py::test_drafts_are_cut_at_the_edges_of_the_staircase"),),
    ),
    Mutant(
        "cutting: another session's text is looked back on",
        CUTTING,
        "extra * candidates[place].cells",
        "extra * candidates[0].cells",
        (ORDER,),
    ),
    Mutant(
        "cutting: another session's nodes are taken for one's own",
        CUTTING,
        "(-chances[index][count], index)",
        "(-chances[0][count], index)",
        (ORDER,),
    ),
    Mutant(
        "weighing: one source's failures are all sources' doubt",
        WEIGHING,
        "self.stats.source(source.name).bias.doubt",
        "max((each.bias.doubt for each in self.stats.neural.values()), default=0.0)",
        ("control/test_best_source.py::test_each_source_is_doubted_for_its_own_failures",),
    ),
    Mutant(
        "controller: a prompt is read for an answer that ends soon",
        WEIGHING,
        " and CAUTION * backlog <= saving * reads",
        "",
        ("control/test_controller.py::test_a_source_is_not_read_for_an_answer_that_ends_soon",),
    ),
    Mutant(
        "threads: a neighbour that has left is never missed",
        THREADS,
        "if disturbed or self.chosen < self.most:",
        "if disturbed:",
        (
            "engine/test_thread_count.py::test_a_neighbour_that_holds_all_up_costs_one_thread_and_gets_it_back",
        ),
    ),
    Mutant(
        "window: what is skipped was read quickly",
        "localspec/engine/speculation/drafting.py",
        "request.session.pending + (_skipped(request.session) or 0)",
        "request.session.pending",
        ("laws/test_gaps_law.py::test_only_tokens_that_a_source_read_are_counted",),
    ),
    Mutant(
        "window: any part of a text is enough",
        "localspec/control/weighing.py",
        "if _WINDOW_SHARE * text <= WINDOW else 0",
        "if text else 0",
        ("control/test_window.py::test_it_is_not_read_where_it_would_not_pay",),
    ),
    Mutant(
        "window: the end is read where the whole could be",
        WEIGHING,
        " if lead > 0 and backlog > self.left else 0.0",
        " if lead > 0 else 0.0",
        ("control/test_window.py::test_the_whole_is_read_where_that_may_be",),
    ),
    Mutant(
        "controller: what may be lost is there at once",
        "localspec/control/weighing.py",
        "return missing_seconds / income if income > 0 else math.inf",
        "return 0.0 if income > 0 else math.inf",
        ("control/test_window.py::test_what_would_be_read_too_late_is_not_read_at_all",),
    ),
    Mutant(
        "window: what it takes need not be repaid",
        WEIGHING,
        " or 2 * CAUTION * seconds > saved:",
        ":",
        ("control/test_window.py::test_it_is_not_read_where_it_would_not_pay",),
    ),
    Mutant(
        "threads: forwards of a draft are compared with those of a target",
        THREADS,
        "            alike = min(map(len, by_count.values()))",
        "            alike = max(map(len, by_count.values()))",
        ("engine/test_thread_count.py::test_never_much_slower_than_all_threads",),
    ),
    Mutant(
        "threads: strict answers change with llama.cpp's attention",
        "localspec/worker/thread_choice.py",
        "target.model.on_cpu and (ours.attends or not self._strict())",
        "target.model.on_cpu",
        ("worker/test_threads.py::test_threads_vary_unless_strict_bits_come_of_them",),
    ),
]
