"""Sources of drafts, one file per kind, found by name.

A kind is a module of this package with `build(...) -> Drafter`, which is given what its parameters
name (`takes`). A new kind is one new file here, and its name in `config.py`; a part that no kind
needed before is one line of `worker/loader.py: _offers`.

A `Drafter` may say more of itself than its protocol asks for, by attributes that default to False:

* `takes_time`: it is free, but not as fast as a lookup, so it is asked where that repays itself.
* `stepwise`: it reads what other sources drafted before it one token in each of its own forwards.
* `live`: it drafts only in real rounds, from the target's own context; a replay cannot ask it.
* `beside`: it may draft on a thread of its own while the target verifies.
* `n_vocab`: the tokens that it can read, where these are not all of the target's.
* `coupled_only`: why rejection is refused for it, as a sentence.
"""

from __future__ import annotations

import difflib
import importlib
import inspect
import pkgutil
from typing import Any, cast

from localspec.errors import ConfigError
from localspec.types import Drafter

_TRANSLATED = ("context", "translation")
"""The parts of a drafter whose draft model has another tokenizer."""


def kinds() -> list[str]:
    """The kinds that can be loaded, in alphabetical order. Imports none of them."""
    return sorted(
        module.name for module in pkgutil.iter_modules(__path__) if not module.name.startswith("_")
    )


def takes(kind: str) -> frozenset[str]:
    """The parts that a drafter of this kind is built with, which a loader makes.

    `context` is a draft model's, `head` a feature head, `eagle3` and `mtp` are heads that are fed,
    `corpus` is an index of files: a kind that takes one needs it. The others are the target's:
    `early` (its context, for an early exit), `n_vocab`, `ends` (tokens that end an answer) and
    `piece` (the bytes that a token writes).

    Raises:
        ConfigError: there is no such kind.
    """
    return frozenset(inspect.signature(_module(kind).build).parameters)


def load(kind: str, **offered: Any) -> Drafter:
    """The drafter of this kind, built with those of the `offered` parts that it takes.

    A `translation` is offered, and not None, where the draft model has another tokenizer than its
    target. Then `_translated.py` is built in place of a kind that takes a draft model's context.

    Raises:
        ConfigError: there is no such kind.
    """
    if offered.get("translation") is not None and "context" in takes(kind):
        module = importlib.import_module(f"{__name__}._translated")
        return cast("Drafter", module.build(**{name: offered[name] for name in _TRANSLATED}))
    wanted = {name: offered[name] for name in takes(kind) & offered.keys()}
    return cast("Drafter", _module(kind).build(**wanted))


def _module(kind: str) -> Any:
    known = kinds()
    if kind not in known:
        near = difflib.get_close_matches(kind, known, n=1)
        hint = f"Did you mean {near[0]}? " if near else ""
        raise ConfigError(
            f'There is no drafter "{kind}".',
            fix=f"{hint}Known: {', '.join(known)}.",
            param="speculation.drafters",
        )
    return importlib.import_module(f"{__name__}.{kind}")
