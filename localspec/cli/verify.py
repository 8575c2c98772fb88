"""`localspec verify`: compares the texts with drafts to those without."""

from __future__ import annotations

from pathlib import Path

import click
import msgspec

from localspec.bench import arms, readiness, report, verification
from localspec.bench.results import Settings
from localspec.cli import measuring, waiting
from localspec.errors import LocalSpecError

DIFFERENCES_SHOWN = 20


@click.command()
@measuring.WHICH_PROMPTS
@measuring.MODEL
@measuring.SEED
@measuring.JSON
@measuring.NO_SPAWN
def verify(  # noqa: PLR0913  one argument per option is click's way
    *,
    file: Path | None,
    slices: tuple[str, ...],
    limit: int | None,
    tokens: int,
    model: str | None,
    seed: int,
    as_json: bool,
    no_spawn: bool,
) -> None:
    """Replay prompts with drafts and without, and compare the texts.

    Greedy and at T = 0.8 with a seed; by auto, and by each drafter made to draft every round. Exit
    code 1 if anything differs although exactness is strict.

    Example: localspec verify --slices code,edit --limit 2
    """
    prompts = measuring.prompts_of(file, slices, limit)
    client = waiting.running_daemon(spawn=not no_spawn)
    with measuring.progress_bar("loading"):
        found = readiness.with_exactness(client, readiness.loaded(client, model)["name"])
    compared = list(arms.forced(client, found).values())
    with measuring.progress_bar("verify", len(prompts) * len(verification.WAYS)) as tell:
        settings = Settings(max_tokens=tokens, seed=seed)
        verified = verification.verify(compared, prompts, settings, found, tell)
    if as_json:
        click.echo(msgspec.json.encode(verified).decode())
    else:
        _tell(verified)
    if verified.broken:
        click.get_current_context().exit(LocalSpecError.exit_code)


def _tell(verified: verification.Verification) -> None:
    measuring.say(f"{verified.model}, exactness {verified.exactness}")
    rows = [
        [tally.way, tally.arm, f"{tally.equal} of {tally.compared}",
         f"{tally.accepted} of {tally.drafted}"]
        for tally in verified.tallies
    ]  # fmt: skip
    head = ["way", "arm", "equal", "accepted drafts"]
    measuring.show(report.Table("Texts equal to plain's", head, rows, labels=2))
    for one in verified.differences[:DIFFERENCES_SHOWN]:
        click.echo()
        measuring.say(
            f"{one.prompt}, turn {one.turn + 1}, {one.way}, {one.arm}: "
            f"first difference at character {one.position}, after {one.before!r}"
        )
        measuring.say(repr(one.plain), "  plain: ")
        measuring.say(repr(one.found), f"  {one.arm}: ")
        if one.likeliest and one.logit_gap is not None:
            likelier, other = one.likeliest
            measuring.say(f"logit gap {one.logit_gap:.2f}: {likelier!r} before {other!r}", "  ")
    hidden = len(verified.differences) - DIFFERENCES_SHOWN
    if hidden > 0:
        click.echo(f"\n{hidden} more differences; --json has them all.")
    if verified.differences and not verified.broken:
        click.echo()
        measuring.say(
            'exactness = "standard" lets the last bits of a logit depend on how many rows were '
            'computed with it; where two tokens are nearly equal, that shows. "strict" does not. '
            'What "auto" chose, and why: localspec status'
        )
