"""Arms of a benchmark: ways of asking this daemon, and other servers to compare it with."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from localspec.client import Client, Json
from localspec.errors import RequestError

PLAIN = "plain"
AUTO = "auto"
PREDICTION = "prediction"
NO_CORPUS = "no-corpus"
_UNUSUAL = frozenset({NO_CORPUS, "lookahead", "early_exit"})
"""Arms that are measured only if named: the last two seldom draft and are then like plain."""

_FENCE = re.compile(r"^(`{3,})[^`\n]*\n(.*?)^\1`*[ \t]*$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True, slots=True)
class Arm:
    """One way of getting an answer; `fields` are added to each of its requests.

    `foreign` means that the server is not our daemon. `predicts` means that each request predicts
    that the answer repeats the code of its question.
    """

    name: str
    client: Client
    fields: Mapping[str, Any] = field(default_factory=dict)
    foreign: bool = False
    predicts: bool = False

    def prediction(self, question: str) -> str:
        """The predicted output: the last fenced block of the question; "" for none."""
        blocks = _FENCE.findall(question) if self.predicts else []
        return blocks[-1][1] if blocks else ""


def own(client: Client, model: Json) -> dict[str, Arm]:
    """The arms of this daemon by name: plain, auto, each drafter alone, prediction, no corpus.

    `model` is the model's entry in the daemon's status. A drafter alone still decides in each round
    whether it drafts, so that arm differs from auto only in its sources.
    """
    speculation: dict[str, Json] = {PLAIN: {"mode": "off"}, AUTO: {"mode": "auto"}}
    for drafter in _drafters(model):
        speculation[drafter] = {"mode": "auto", "drafters": [drafter]}
    speculation[PREDICTION] = speculation[AUTO]
    if "corpus" in speculation:
        others = [name for name in model["drafters"] if name != "corpus"]
        speculation[NO_CORPUS] = {"mode": "auto", "drafters": others}
    return {
        name: Arm(
            name,
            client,
            {"model": model["name"], "speculation": wish},
            predicts=name == PREDICTION,
        )
        for name, wish in speculation.items()
    }


def forced(client: Client, model: Json) -> dict[str, Arm]:
    """The arms of a verification: plain, auto, and each drafter that can be told to draft always.

    Lookahead and early exits cannot: in any arm they draft only where it pays.
    """
    arms = own(client, model)
    del arms[PREDICTION]
    for name in _UNUSUAL:
        arms.pop(name, None)
    for drafter in arms.keys() & _drafters(model):
        wish = {"mode": "always", "drafters": [drafter]}
        arms[drafter] = Arm(drafter, client, {"model": model["name"], "speculation": wish})
    return arms


def _drafters(model: Json) -> list[str]:
    """The model's drafters except "grammar", which drafts only for requests with a grammar."""
    return [name for name in model.get("drafters") or [] if name != "grammar"]


def chosen(arms: Mapping[str, Arm], names: Sequence[str]) -> list[Arm]:
    """The named arms in the order of `arms`, and always plain, which they are compared with.

    Without names all arms are chosen except a single drafter, which would equal auto, prediction,
    which equals auto for most prompts, and those that seldom draft. Raises RequestError.
    """
    for name in names:
        if name not in arms:
            raise RequestError(
                f"This model has no arm {name!r}.", fix=f"Arms here: {', '.join(arms)}."
            )
    if not names:
        usual = [arm for arm in arms.values() if not arm.predicts and arm.name not in _UNUSUAL]
        single = len(usual) == len((PLAIN, AUTO)) + 1
        return usual[: 2 if single else None]
    return [arm for name, arm in arms.items() if name == PLAIN or name in names]


def against(url: str, key: str = "") -> Arm:
    """Another server of OpenAI's API at http://host[:port][/v1] or unix:///path.

    `key` is sent as its API key. Raises RequestError for anything else.
    """
    parts = urlsplit(url)
    try:
        port = parts.port or 80
    except ValueError as error:
        raise RequestError(f"{url!r} has no valid port.", param="against") from error
    if parts.scheme == "unix" and parts.path and not parts.netloc:
        return Arm(url, Client(Path(parts.path), token=key), foreign=True)
    usual_path = parts.path.rstrip("/") in ("", "/v1")
    if parts.scheme == "http" and parts.hostname and usual_path and not parts.query:
        return Arm(url, Client(tcp=(parts.hostname, port), token=key), foreign=True)
    raise RequestError(
        f"{url!r} is no address of a server to compare with.",
        fix="Write http://host:port or unix:///path; it must serve /v1/chat/completions.",
        param="against",
    )
