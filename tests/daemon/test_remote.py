"""A target whose layers are on other machines: two worker-hosts on loopback, and their death."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import gguf
import pytest
import tiny
from worker_hosts import WorkerHost, built_with_rpc, free_address, needs_rpc, worker_hosts

from localspec_daemon.supervisor.worker import COMMAND

TEXT = "def add(a, b):\n    return a + b\n" * 4
LAYERS = 6
ASKED: dict[str, Any] = {
    "max_tokens": 48, "seed": 3, "temperature": 0.7, "ignore_eos": True,
    "speculation": {"mode": "always"},
}  # fmt: skip


@pytest.fixture
def harness(harness: Any) -> Any:
    """A daemon's directory with a small real pair, of matrices that every device computes alike."""
    plain = gguf.GGMLQuantizationType.F32
    tiny.build(harness.models / "alpha.gguf", layers=LAYERS, quantization=plain)
    tiny.build(
        harness.models / "little.gguf", layers=LAYERS, quantization=plain, like=0, noise=0.02
    )
    (harness.models / "drafts.json").write_text('{"alpha":"little"}')
    harness.configure(engine={"context": 512, "slots": 2})
    return harness


@pytest.fixture
def hosts() -> Iterator[list[WorkerHost]]:
    """Runs two worker-hosts."""
    with worker_hosts(2) as hosts:
        yield hosts


def lend(harness: Any, hosts: list[WorkerHost]) -> None:
    """Configures these remotes for the target."""
    harness.configure(engine={"remote": [host.address for host in hosts]})


def content(answer: Any) -> str:
    """Returns the text of a whole answer."""
    return str(answer["choices"][0]["message"]["content"])


@needs_rpc
@pytest.mark.parametrize("exactness", ["standard", "strict"])
def test_a_split_target_says_what_a_local_one_says(
    harness: Any, daemon: Any, hosts: Any, exactness: str
) -> None:
    """The tokens are equal, with drafts; the target is on both remotes, the draft is local."""
    harness.configure(engine={"exactness": exactness})

    async def scene() -> None:
        async with daemon(harness, COMMAND) as it:
            _, here = await it.ask(TEXT, **ASKED)
        lend(harness, hosts)
        async with daemon(harness, COMMAND) as it:
            _, split = await it.ask(TEXT, **ASKED)
            model = (await it.get("/v1/status"))["models"][0]
        assert content(split) == content(here)
        if exactness == "standard":  # strict drafts once the probe, in pauses, allows it
            assert split["speculation"]["sources"]["model"]["accepted"] > 0
        places = [f"RPC0[{host.address}]" for host in hosts]
        assert sorted(model["layers"]) == sorted(places)
        spans = sorted(model["layers"].values())
        assert (spans[0][0], spans[-1][1]) == (0, LAYERS)
        assert spans[1][0] == spans[0][1] + 1
        held = {(part["device"], part["what"]) for part in model["devices"]}
        for place in places:
            assert {(place, "target model"), (place, "target KV")} <= held
        assert all(device.startswith("CPU") for device, what in held if what.startswith("draft"))

    asyncio.run(scene())


@needs_rpc
def test_a_killed_remote_ends_its_streams_and_is_named_until_it_is_back(
    harness: Any, daemon: Any, hosts: Any
) -> None:
    """An error event, then 503 with the address, no crash counted, then the same answer."""
    lend(harness, hosts)

    async def scene() -> None:
        async with daemon(harness, COMMAND) as it:
            _, before = await it.ask(TEXT, **ASKED)
            async with it.streaming("tell me", max_tokens=400, ignore_eos=True) as stream:
                await stream.next('data: {"id"')
                hosts[1].kill()
                lines = await stream.rest()
            assert json.loads(lines[-1][6:])["error"]["code"] == "remote_unavailable"
            await it.until(lambda: it.model().state == "failed")
            for _ in range(6):  # more often than a crashing model may be tried
                status, answer = await it.ask(TEXT, **ASKED)
                assert status == 503
                assert hosts[1].address in answer["error"]["message"]
                assert "worker-host" in answer["error"]["fix"]
            assert (it.model().crashes.times, it.model().fallbacks.safe_kernels) == ([], False)
            hosts.append(WorkerHost(hosts[1].address))
            status, after = await it.ask(TEXT, **ASKED)
            assert (status, content(after)) == (200, content(before))

    asyncio.run(scene())


@needs_rpc
def test_a_remote_that_fell_while_nobody_asked_is_named_or_used_again(
    harness: Any, daemon: Any, hosts: Any
) -> None:
    """The next request names a missing remote, and uses one that was only restarted."""
    lend(harness, hosts)

    async def scene() -> None:
        async with daemon(harness, COMMAND) as it:
            _, before = await it.ask(TEXT, **ASKED)
            hosts[0].kill()
            status, answer = await it.ask(TEXT, **ASKED)
            assert status == 503
            assert answer["error"]["message"].startswith(f"The remote {hosts[0].address} does not")
            hosts.append(WorkerHost(hosts[0].address))
            assert (await it.ask(TEXT, **ASKED))[0] == 200
            hosts[-1].kill()
            hosts.append(WorkerHost(hosts[0].address))
            status, after = await it.ask(TEXT, **ASKED)
            assert (status, content(after)) == (200, content(before))
            assert it.model().crashes.times == []

    asyncio.run(scene())


@needs_rpc
def test_a_remote_that_is_not_there_is_named_before_anything_is_loaded(
    harness: Any, daemon: Any
) -> None:
    """503, until a change of the configuration removes it."""
    harness.configure(engine={"remote": [free_address()]})

    async def scene() -> None:
        async with daemon(harness, COMMAND) as it:
            status, answer = await it.ask(TEXT, max_tokens=2)
            assert (status, answer["error"]["code"]) == (503, "remote_unavailable")
            assert it.model().progress is None
            harness.configure(engine={"remote": []})
            await it.server.supervisor.reload(changed=True)
            assert (await it.ask(TEXT, max_tokens=2))[0] == 200

    asyncio.run(scene())


@pytest.mark.skipif(built_with_rpc(), reason="this llama.cpp has RPC")
def test_a_build_without_rpc_refuses_remotes_in_a_sentence(harness: Any, daemon: Any) -> None:
    """The sentence has the missing part and the fix; no connection is tried."""
    harness.configure(engine={"remote": ["192.0.2.1:50052"]})

    async def scene() -> None:
        async with daemon(harness, COMMAND) as it:
            status, answer = await it.ask(TEXT, max_tokens=2)
            assert (status, answer["error"]["code"]) == (400, "config_error")
            assert "make REMOTE=1" in answer["error"]["fix"]

    asyncio.run(scene())
