"""Mistakes that would change tokens: the sampler, its noise, both rules of verification."""

from __future__ import annotations

from mutants.mutant import Mutant

SAMPLING, VERIFY = "localspec/engine/sampling.py", "localspec/engine/verify.py"
FAIR = "laws/test_rejection_law.py::test_each_token_follows_the_targets_law"
TEXTBOOK = "laws/test_sampling.py::test_the_law_equals_the_textbook_chain"

LAW = [
    Mutant(
        "rejection: answered coupled",
        "localspec/engine/speculation/verification.py",
        "VERIFIERS[session.request.speculation.verify]",
        'VERIFIERS["coupled"]',
        ("laws/test_rejection_law.py::test_rejection_is_another_rule_than_coupling",),
    ),
    Mutant(
        "rejection: penalties do not see the draft's path",
        VERIFY,
        "law = sampler.law(logits[node + 1], frontier.recent, path, here)",
        "law = sampler.law(logits[node + 1], frontier.recent, [], here)",
        (f"{FAIR}[penalties-1000]",),
    ),
    Mutant(
        "rejection: an end inside a draft ends nothing",
        VERIFY,
        "        if token in frontier.ends:",
        "        if token in ():",
        (
            (
                "laws/test_rejection_law.py::"
                "test_an_end_inside_a_draft_ends_the_text_and_comes_as_often_as_it_should"
            ),
        ),
    ),
    Mutant(
        "rejection: argmax drafts are judged with law q",
        SAMPLING,
        "return self.draw(law, root << 32 | position, Purpose.DRAFT), law",
        "return int(law.tokens[law.logp.argmax()]), law",
        (f"{FAIR}[model-1000]",),
    ),
    Mutant(
        "rejection: a copied node counts as half a point mass",
        VERIFY,
        "    if law is None:\n        return 1.0",
        "    if law is None:\n        return 0.5",
        (f"{FAIR}[lookup-1000]",),
    ),
    Mutant(
        "rejection: the correction may repeat a copied token",
        VERIFY,
        "mass = np.where(law.tokens == token, 0.0, mass)",
        "mass = np.where(law.tokens == token, mass, mass)",
        (f"{FAIR}[lookup-1000]",),
    ),
    Mutant(
        "rejection: the correction is drawn from p",
        VERIFY,
        "mass = np.maximum(mass - q, 0.0)",
        "mass = np.maximum(mass, 0.0)",
        ("laws/test_target_law.py::test_the_first_tokens_follow_the_targets_law",),
    ),
    Mutant(
        "rejection: drawn nodes may be cut",
        "localspec/engine/speculation/drafting.py",
        "draft.head(max(cut, draft.drawn))",
        "draft.head(cut)",
        (f"{FAIR}[model-1000]",),
    ),
    Mutant(
        "rejection: the controller prices fewer nodes than are verified",
        "localspec/control/controller.py",
        "max(draft.drawn, int(view.always",
        "max(0, int(view.always",
        ("control/test_controller.py::test_what_was_drawn_from_a_law_is_verified",),
    ),
    Mutant(
        "rejection: a position is drafted with the same noise every round",
        SAMPLING,
        "self.draw(law, root << 32 | position, Purpose.DRAFT)",
        "self.draw(law, position, Purpose.DRAFT)",
        ("laws/test_sampling.py::test_an_independent_draft_has_new_noise_in_every_round",),
    ),
    Mutant(
        "rejection: three times too generous",
        VERIFY,
        "sampler.uniform(here, Purpose.ACCEPT) * q >= p",
        "sampler.uniform(here, Purpose.ACCEPT) * q >= 3 * p",
        (f"{FAIR}[lookup-1000]",),
    ),
    Mutant(
        "coupled: an end inside a draft ends nothing",
        VERIFY,
        "if child is None or token in frontier.ends:",
        "if child is None:",
        ("laws/test_lossless.py::test_an_end_of_generation_inside_a_draft_ends_the_text",),
    ),
    Mutant(
        "coupled: any child is followed",
        VERIFY,
        "if draft.parents[child] == node and draft.tokens[child] == token:",
        "if draft.parents[child] == node:",
        ("laws/test_sampling.py::test_a_tree_gives_the_tokens_of_plain_decoding",),
    ),
    Mutant(
        "coupled: the noise does not move along the draft",
        VERIFY,
        "token = sampler.pick(logits[node + 1], frontier.recent, path, position + len(path))",
        "token = sampler.pick(logits[node + 1], frontier.recent, path, position)",
        ("laws/test_sampling.py::test_a_tree_gives_the_tokens_of_plain_decoding",),
    ),
    Mutant(
        "noise: 53 bits and a half round up to 1",
        SAMPLING,
        "(np.asarray(bits >> np.uint64(12), dtype=np.float64) + 0.5) * 2.0**-52",
        "(np.asarray(bits >> np.uint64(11), dtype=np.float64) + 0.5) * 2.0**-53",
        ("laws/test_sampling.py::test_no_bits_are_the_end_of_the_unit_interval",),
    ),
    Mutant(
        "noise: the same for every purpose",
        SAMPLING,
        "position * 4 + purpose + 1",
        "position * 4 + 1",
        ("laws/test_sampling.py::test_noise_is_uniform_and_uncorrelated",),
    ),
    Mutant(
        "sampler: a small temperature overflows",
        SAMPLING,
        "    scores -= scores.max()\n",
        "",
        ("test_ranges.py::test_whatever_is_in_range_has_a_law",),
    ),
    Mutant(
        "sampler: penalties do not see the draft's path",
        SAMPLING,
        "self._penalize(adjusted, [*recent[-params.penalty_last_n :], *path])",
        "self._penalize(adjusted, [*recent[-params.penalty_last_n :]])",
        ("laws/test_sampling.py::test_penalties_see_the_draft_path_node_by_node",),
    ),
    Mutant(
        "sampler: top_p keeps one token too many",
        SAMPLING,
        "keep = 1 + int(np.searchsorted",
        "keep = 2 + int(np.searchsorted",
        (TEXTBOOK,),
    ),
    Mutant(
        "sampler: temperature multiplies",
        SAMPLING,
        "scores /= temperature",
        "scores *= temperature",
        (TEXTBOOK,),
    ),
    Mutant(
        "sampler: the grammar does not see the draft's path",
        SAMPLING,
        "self.constraint.mask(path)",
        "self.constraint.mask([])",
        ("laws/test_grammar_law.py::test_a_mask_and_drafts_give_the_tokens_of_plain_decoding",),
    ),
    Mutant(
        "sampler: logits that are no numbers become text",
        SAMPLING,
        "    if np.isfinite(best):",
        "    if not best > 1e30:",
        ("laws/test_sampling.py::test_logits_that_are_no_numbers_are_an_error",),
    ),
    Mutant(
        "peaks: of equal logits any may win",
        "localspec/engine/block_max.py",
        "alone = np.count_nonzero(maxima == maxima[block]) == 1",
        "alone = np.count_nonzero(maxima == maxima[block]) >= 1",
        ("laws/test_sampling.py::test_the_peaks_know_the_likeliest_token",),
    ),
]
