"""The order of a measurement, and what is made of a server's answer."""

from __future__ import annotations

from collections import Counter
from time import perf_counter

import pytest
from scripted import TIMINGS, Peer, answer, chunk, event

from localspec.bench import arms
from localspec.bench.measure import measure, schedule
from localspec.bench.results import Answer, Settings
from localspec.bench.suite import Prompt
from localspec.client import Client
from localspec.errors import DaemonError, NotRunning, RequestError

MODEL = {"name": "tiny", "drafters": ["lookup", "model"]}
PROMPTS = [Prompt(f"qa/{number}", "qa", ("Why?",)) for number in range(8)]
ONCE = Settings(repeats=1)
DONE = b"data: [DONE]\n\n"


def silent(_count: int, _text: str) -> None:
    """Progress is shown nowhere."""


def foreign(peer: Peer) -> arms.Arm:
    """The peer as a server to compare with."""
    return arms.against(f"unix://{peer.socket_path}")


def one(peer: Peer) -> Answer:
    """The only answer of a measurement of one prompt by a foreign server."""
    batches, skipped = measure([foreign(peer)], PROMPTS[:1], ONCE, silent)
    assert skipped == {}
    ((found,),) = [batch.answers for batch in batches]
    return found


def test_every_arm_answers_every_prompt_next_to_the_others() -> None:
    """Interleaved prompt by prompt, and each arm begins equally often."""
    ways = arms.chosen(arms.own(Client(), MODEL), [])
    order = list(schedule(ways, PROMPTS, repeats=2, concurrency=1))
    assert len(order) == 2 * len(PROMPTS) * len(ways)
    starts = Counter[str]()
    for at in range(0, len(order), len(ways)):
        block = order[at : at + len(ways)]
        assert len({(repeat, group[0].name) for repeat, group, _ in block}) == 1
        assert {arm.name for _, _, arm in block} == {arm.name for arm in ways}
        starts[block[0][2].name] += 1
    assert set(starts.values()) == {len(PROMPTS) * 2 // len(ways)}


def test_prompts_are_asked_together_as_many_as_wished() -> None:
    """And the last group takes what is left."""
    (way, *_) = arms.own(Client(), MODEL).values()
    groups = [len(group) for _, group, _ in schedule([way], PROMPTS, 1, concurrency=3)]
    assert groups == [3, 3, 2]


def test_a_server_with_timings_is_believed() -> None:
    """llama-server's `timings`, field for field."""
    with Peer([answer("some ", "text")]) as peer:
        found = one(peer)
    assert found.text == "some text"
    assert found.tokens == TIMINGS["predicted_n"]
    assert found.decode_seconds == pytest.approx(4.407)
    assert found.cached_tokens == 96
    assert found.kind == "replay"
    assert found.rounds == 84
    assert found.sources["lookup"].accepted == 102


def test_a_server_without_timings_is_timed() -> None:
    """Its usage has the tokens; the time runs from its first text to its last."""
    usage = {"prompt_tokens": 116, "completion_tokens": 7}
    stream = [chunk("a"), chunk("b"), chunk(finish="stop"), event({"usage": usage}), DONE]
    with Peer([stream]) as peer:
        found = one(peer)
    assert found.tokens == 7
    assert found.kind == "cold"
    assert found.rounds is None
    assert found.ttft_seconds is not None
    assert 0 < found.decode_seconds < found.seconds
    assert 0 < found.ttft_seconds < found.seconds


def test_a_server_that_counts_nothing_is_counted() -> None:
    """Pieces stand for tokens where there is no usage."""
    with Peer([[chunk("a"), chunk("b"), chunk("c"), chunk(finish="stop"), DONE]]) as peer:
        assert one(peer).tokens == 3


def test_a_conversation_carries_the_arms_own_answers() -> None:
    """The second turn is asked with the first one's answer before it."""
    prompt = Prompt("chat/1", "chat", ("First?", "Second?"))
    with Peer([answer("One."), answer("Two.")]) as peer:
        batches, _ = measure([foreign(peer)], [prompt], ONCE, silent)
        bodies = [asked.body for asked in peer.asked]
    assert [found.kind for found in batches[0].answers] == ["replay", "conversation"]
    assert [turn["content"] for turn in bodies[1]["messages"]] == ["First?", "One.", "Second?"]
    assert "speculation" not in bodies[0]
    assert bodies[0]["max_tokens"] == ONCE.max_tokens


def test_our_own_arms_differ_in_their_speculation_alone() -> None:
    """Each asks the same model for the same, with its own wish."""
    with Peer([answer("x")] * 5) as peer:
        ways = list(arms.own(Client(peer.socket_path), MODEL).values())
        measure(ways, PROMPTS[:1], ONCE, silent)
        bodies = [asked.body for asked in peer.asked]
    assert [body.pop("speculation") for body in bodies] == [
        {"mode": "off"},
        {"mode": "auto"},
        {"mode": "auto", "drafters": ["lookup"]},
        {"mode": "auto", "drafters": ["model"]},
        {"mode": "auto"},
    ]
    assert all(body == bodies[0] for body in bodies)


def test_a_refused_prompt_is_left_out_and_not_asked_again() -> None:
    """The others go on."""
    refusal = {"error": {"message": "too long", "code": "context_length_exceeded"}}
    with Peer([(400, refusal), answer("x"), answer("y")]) as peer:
        settings = Settings(repeats=2)
        batches, skipped = measure([foreign(peer)], PROMPTS[:2], settings, silent)
    assert list(skipped) == ["qa/0"]
    assert skipped["qa/0"].endswith("too long")
    assert [len(batch.answers) for batch in batches] == [0, 1, 0, 1]


def test_prompts_asked_together_all_arrive() -> None:
    """One batch, one time for all of it, answers in the order of the prompts."""
    with Peer([answer("x")] * 3) as peer:
        settings = Settings(repeats=1, concurrency=3)
        (batch,), _ = measure([foreign(peer)], PROMPTS[:3], settings, silent)
    assert [found.prompt for found in batch.answers] == ["qa/0", "qa/1", "qa/2"]
    assert batch.seconds >= max(found.seconds for found in batch.answers)


def test_a_foreign_server_that_fails_is_named() -> None:
    """An error of another server has its name, so that the daemon is not blamed."""
    with Peer([(500, {"error": {"message": "out of memory"}})]) as peer:
        with pytest.raises(DaemonError, match=r"The server at unix:.*out of memory") as failed:
            measure([foreign(peer)], PROMPTS[:1], ONCE, silent)
        assert "localspec" not in failed.value.fix
        gone = foreign(peer)
    with pytest.raises(NotRunning, match="The server at unix:"):
        measure([gone], PROMPTS[:1], ONCE, silent)


@pytest.mark.parametrize(
    ("url", "reached"),
    [
        ("http://127.0.0.1:8080", "127.0.0.1:8080"),
        ("http://127.0.0.1:8080/v1/", "127.0.0.1:8080"),
        ("http://server", "server:80"),
        ("unix:///run/s", "/run/s"),
    ],
)
def test_addresses_of_other_servers(url: str, reached: str) -> None:
    """HTTP and Unix sockets."""
    arm = arms.against(url)
    assert str(arm.client) == reached
    assert arm.foreign


@pytest.mark.parametrize(
    "url",
    ["", "127.0.0.1:8080", "https://x", "http://", "http://x:99999", "http://x/api", "unix://"],
)
def test_other_addresses_are_refused(url: str) -> None:
    """Before anything is measured."""
    with pytest.raises(RequestError):
        arms.against(url)


def test_a_key_goes_to_the_other_server_alone() -> None:
    """As OpenAI's clients send it; without one nothing is sent."""
    with Peer([answer("hello"), answer("hello")]) as peer:
        for key in ("secret", ""):
            measure([arms.against(f"unix://{peer.socket_path}", key)], PROMPTS[:1], ONCE, silent)
    sent = [asked.headers.get("Authorization") for asked in peer.asked]
    assert sent == ["Bearer secret", None]


def test_plain_is_always_among_the_arms() -> None:
    """It is what everything is compared to; a single drafter alone would be auto once more."""
    both = arms.own(Client(), MODEL)
    lookup_only = arms.own(Client(), {"name": "tiny", "drafters": ["lookup"]})
    names = [arm.name for arm in arms.chosen(both, ["model"])]
    assert names == ["plain", "model"]
    assert [arm.name for arm in arms.chosen(both, [])] == ["plain", "auto", "lookup", "model"]
    assert [arm.name for arm in arms.chosen(lookup_only, [])] == ["plain", "auto"]
    with pytest.raises(RequestError, match="'eagle'"):
        arms.chosen(both, ["eagle"])


FENCED = """Rename it.

```python
x = 1
```

To this:

````md
```
y = 2
```
````

What an ``` is, I know.
"""


def test_a_pause_comes_before_each_later_turn() -> None:
    """Each pause lasts as long as was wished; none comes before the first question."""
    prompt = Prompt("chat/1", "chat", ("Why?", "And then?", "And?"))
    with Peer([answer("one"), answer("two"), answer("three")]) as peer:
        began = perf_counter()
        (batch,), _ = measure(
            [foreign(peer)], [prompt], Settings(repeats=1, pause_seconds=0.05), silent
        )
        assert perf_counter() - began >= 2 * 0.05
    assert [found.turn for found in batch.answers] == [0, 1, 2]


def test_the_arm_prediction_predicts_the_last_fenced_block_of_a_turn() -> None:
    """Whole and without its fence, which may hold shorter ones; without a block nothing."""
    with Peer([answer("a") for _ in range(4)]) as peer:
        known = arms.own(Client(peer.socket_path), MODEL)
        named = arms.chosen(known, ["prediction"])
        prompts = [Prompt("edit/1", "edit", (FENCED,)), PROMPTS[0]]
        measure(named, prompts, ONCE, silent)
    assert [arm.name for arm in named] == ["plain", "prediction"]
    sent = [asked.body.get("prediction") for asked in peer.asked]
    predicted = {"type": "content", "content": "```\ny = 2\n```\n"}
    assert [found for found in sent if found] == [predicted]
    assert sum(asked.body["speculation"] == {"mode": "auto"} for asked in peer.asked) == 2


def test_another_server_is_asked_while_our_daemon_has_no_idle_work() -> None:
    """Its figures would be worse by what the daemon computes for itself."""
    busy, idle = ({"models": [{"name": "tiny", "idle_work": work}]} for work in (True, False))
    with Peer([answer("a")], statuses=[busy], status=idle) as ours, Peer([answer("b")]) as peer:
        arms_of_both = [arms.Arm("auto", Client(ours.socket_path)), foreign(peer)]
        told: list[str] = []
        measure(arms_of_both, PROMPTS[:1], ONCE, lambda _, text: told.append(text))
    assert ours.statuses == []
    assert [text for text in told if "waits while the daemon measures" in text] == told[1:2]
    assert [asked.path for asked in ours.asked][-2:] == ["/v1/status"] * 2
