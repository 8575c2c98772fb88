"""No prompt is read a second time: what is read of a long conversation that was read before.

Counts of tokens, on models of every kind of memory: a conversation of 3,000 tokens whose last
message is edited, whose answer is wanted anew, which is branched, which takes turns with another
one, and all of that after an unload, a kill and a torn file. Cells go back to any token. A state
goes back to a copy: to the borders of turns, elsewhere to one that is not far.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import kinds
import pytest
import recurrent
import tiny
from worker_peer import GREEDY, Script, Worker

from localspec.config import Config, Engine, Placement
from localspec.engine.batch import LAST_ROWS
from localspec.engine.kv.rollback import STRIDE
from localspec.prefixes import identity
from localspec.types import SpeculationParams
from localspec.wire.messages import Failed, Finished, Generate, Heartbeat, Load, Message, Started
from localspec.worker import assemble

KINDS: dict[str, Callable[[Path], Path]] = {
    "attention": tiny.build,
    "sliding": kinds.sliding,
    "recurrent": recurrent.mamba,
    "hybrid": recurrent.lfm2,
    "delta": kinds.delta_net,
}
CELLS = ("attention", "sliding")
ALONE = Placement(threads=1)
WORDS = 42
"""Of a message; a word has 8 tokens."""
TURNS = 9
MARKS = 48
"""Tokens that a template writes around two messages, at most."""


@pytest.fixture(scope="module", params=KINDS)
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One model of each kind of memory."""
    return KINDS[request.param](tmp_path_factory.mktemp("model") / f"{request.param}.gguf")


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user without anything kept."""
    for name in ("XDG_CACHE_HOME", "XDG_STATE_HOME"):
        monkeypatch.setenv(name, str(tmp_path / name))
    return tmp_path


def load(model: Path, **engine: Any) -> Load:
    """One slot, so that conversations take it from each other."""
    fields: dict[str, Any] = {"slots": 1, "context": 4096, "exactness": "standard"}
    return Load("tiny", str(model), None, Config(engine=Engine(target=ALONE, **fields, **engine)))


def talk(topic: str, turns: int = TURNS) -> list[Message]:
    """A conversation that ends with a question."""
    return [
        Message("user" if turn % 2 == 0 else "assistant", f"{topic} {turn:02d} ".ljust(8) * WORDS)
        for turn in range(turns)
    ]


def chat(id_: str, messages: Sequence[Message]) -> Generate:
    """Its next answer."""
    return Generate(
        id=id_,
        endpoint="chat",
        client="c",
        messages=list(messages),
        max_tokens=8,
        sampling=GREEDY,
        ignore_eos=True,
        speculation=SpeculationParams(mode="off"),
    )


def edited(messages: Sequence[Message]) -> list[Message]:
    """The same conversation with another last message, as long."""
    return [*messages[:-1], Message("user", "another " * WORDS)]


def read(script: Script) -> Iterator[int]:
    """The tokens of each prompt that were read."""
    for last in script.all(Finished):
        cached = script.all(Started, last.id)[0].cached_tokens
        yield last.usage.prompt_tokens - cached


def served(command: Load, *requests: Generate) -> list[int]:
    """Load, answer one after the other, and leave; tokens read of each prompt."""
    identity.learn([Path(command.target_path)])  # which a worker does beside its first requests
    with assemble.load(command, lambda *_: None) as loaded:
        queue = list(requests)
        script = Script(
            [queue.pop(0)],
            lambda event: [queue.pop(0)] if isinstance(event, Finished) and queue else [],
        ).run(loaded)
    assert not script.all(Failed)
    return list(read(script))


MESSAGE = 8 * WORDS + MARKS
ALL = TURNS * 8 * WORDS


def anew(model: Path) -> int:
    """Tokens that may be read where nothing is new, at most."""
    return 1 if model.stem in CELLS else LAST_ROWS


def test_the_same_conversation_goes_on_from_its_last_border(model: Path) -> None:
    """Another last message, another answer, and what is appended."""
    one = talk("a")
    longer = [*one, Message("assistant", "so"), Message("user", "and " * WORDS)]
    first, again, other, back, more = served(
        load(model), *map(chat, "abcde", (one, one, edited(one), one, longer))
    )
    assert first > ALL
    assert again <= anew(model)
    assert other <= MESSAGE
    assert back <= MESSAGE  # of a slot the question was lost, and the copies behind the border
    assert more <= MESSAGE


def test_a_branch_is_read_from_the_nearest_copy(model: Path) -> None:
    """Any earlier message is edited: what stands before it is read at most from one copy on."""
    one = talk("a")
    far = 0 if model.stem in CELLS else STRIDE
    requests = [
        chat(f"{turn} {kind}", messages)
        for turn in (6, 4, 2)
        for kind, messages in (("whole", one), ("branch", edited(one[: turn + 1])))
    ]
    found = served(load(model), *requests)
    assert found[0] > ALL
    assert max(found[1::2]) <= MESSAGE + far


def test_what_a_tool_said_last_is_edited_alone(model: Path) -> None:
    """Several messages may follow the last question: the last of them is a border too."""
    one = talk("a", 3)
    called = [
        *one,
        *(Message(role, role.ljust(8)[:8] * WORDS) for role in ("assistant", "tool") * 2),
    ]
    other = [*called[:-1], Message("tool", "another " * WORDS)]
    first, second = served(load(model), chat("a", called), chat("b", other))
    assert first > 3 * 8 * WORDS
    assert second <= MESSAGE


def test_two_conversations_in_turn_are_read_once(model: Path) -> None:
    """They have one slot, and each finds in the store what the other has pushed out of it."""
    one, two = talk("a"), talk("b")
    found = served(load(model), *map(chat, "abcd", (one, two, one, edited(two))))
    assert min(found[:2]) > ALL
    assert found[2] <= anew(model)
    assert found[3] <= MESSAGE


# --- over the end of a process --------------------------------------------------------------------


def on_disk(home: Path) -> list[Path]:
    """The files of the store."""
    return sorted(home.rglob("*.prefix"))


def test_after_an_unload_nothing_is_read_again(model: Path) -> None:
    """The same question, an edited one and a branch, by the next worker of that model."""
    one, command = talk("a"), load(model)
    served(command, chat("a", one))
    again, other, branch = served(command, *map(chat, "bcd", (one, edited(one), edited(one[:5]))))
    assert again <= anew(model)
    assert other <= MESSAGE
    assert branch <= MESSAGE + (0 if model.stem in CELLS else STRIDE)


def test_after_a_torn_file_the_prompt_is_read(model: Path, home: Path) -> None:
    """It is found and deleted, and the answer comes; what is whole is used."""
    one, two, command = talk("a"), talk("b"), load(model)
    served(command, chat("a", one))
    (first,) = on_disk(home)
    served(command, chat("b", two))
    first.write_bytes(first.read_bytes()[:-100])
    anew_, found = served(command, chat("c", one), chat("d", two))
    assert anew_ > ALL
    assert found <= anew(model)


def test_after_a_kill_what_was_written_is_found(model: Path, home: Path) -> None:
    """SIGKILL of an idle worker, once it has told that a text is on disk."""
    one, command = talk("a"), load(model)
    with closing(Worker(home / "XDG_CACHE_HOME")) as worker:
        worker.send(command)
        worker.until_ready()
        worker.answer(chat("a", one))
        worker.until(lambda event: isinstance(event, Heartbeat) and bool(on_disk(home)))
        worker.process.kill()
        worker.process.wait()
    (again,) = served(command, chat("b", one))
    assert again <= anew(model)
