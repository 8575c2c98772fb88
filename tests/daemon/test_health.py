"""/health: what it tells to whom."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from serving import tcp_client

from localspec import paths


@pytest.mark.parametrize("path", ["/health", "/v1/health"])
def test_only_known_callers_are_told_which_model_fails_and_why(
    harness: Any, daemon: Any, path: str
) -> None:
    """Everybody is told that it fails: process supervisors have no token."""
    harness.add("refused")
    harness.configure(server={"tcp": "127.0.0.1:0"}, models={"default": "refused"})

    async def scene() -> None:
        async with daemon(harness) as it, tcp_client(it, token="") as http:
            await it.ask("say hello")
            token = (paths.state_dir() / "token").read_text().strip()
            for client, secret, known in (
                (it.http, "", True),
                (http, token, True),
                (http, "", False),
                (http, "other", False),
            ):
                sent = {"X-Api-Key": secret} if secret else {}
                async with client.get(path, headers=sent) as response:
                    assert response.status == 503
                    told = await response.text()
                assert ("joke" in told) == known
                assert known or "refused" not in told

    asyncio.run(scene())
