"""Forwards requests to the servers of `[upstream]`: the daemon's only connections to the outside.

Only requests for models that `[upstream]` names, and that are not here, are forwarded: the body and
the configured token, no header or cookie of the client. Redirects are not followed, certificates
are verified, proxies of the environment are not used.
"""

from __future__ import annotations

import asyncio
import os
import ssl
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import aiohttp
from aiohttp import ClientTimeout

from localspec import paths
from localspec.errors import (
    ConfigError,
    LocalSpecError,
    UpstreamFailed,
    UpstreamUnavailable,
    unreadable,
)
from localspec_daemon.api import relay
from localspec_daemon.api.relay import Call, Chunks, Route

CONNECT_SECONDS = 5.0
MAX_TOKEN_BYTES = 8192
MAX_ERROR_BYTES = 64 * 1024
HTTP_OK = 200


class Upstreams:
    """All forwarded requests; `open` counts them. Lives on the event loop's thread."""

    def __init__(self) -> None:
        self.open = 0
        self._session: aiohttp.ClientSession | None = None

    async def whole(self, call: Call) -> bytes:
        """The answer to a request without a stream: a JSON object.

        Raises ConfigError, UpstreamUnavailable, UpstreamFailed, and the error of its status
        (`relay.refusal`).
        """
        async with self._response(call) as response:
            return relay.whole(call.to, await _read(call.to, response, relay.MAX_ANSWER_BYTES))

    async def stream(self, call: Call) -> AsyncGenerator[bytes]:
        """The JSON objects of a stream, until it is done. Closing this closes the connection.

        Raises as `whole` does, also in the middle.
        """
        chunks = Chunks(call.to)
        async with self._response(call) as response:
            if response.content_type != "text/event-stream":
                raise call.to.broke(f"answers with {response.content_type} instead of a stream")
            async for piece in response.content.iter_any():
                for chunk in chunks.feed(piece):
                    yield chunk
                if chunks.done:
                    return
            chunks.end()

    async def close(self) -> None:
        """Close every connection."""
        if self._session:
            await self._session.close()

    @asynccontextmanager
    async def _response(self, call: Call) -> AsyncGenerator[aiohttp.ClientResponse]:
        """A response of status 200; errors of the connection become this project's."""
        to = call.to
        headers = {
            "Content-Type": "application/json",
            "Accept": "application/json, text/event-stream",
            "Accept-Encoding": "identity",
            "User-Agent": "localspec",
        }
        if to.upstream.token_file:
            headers["Authorization"] = f"Bearer {await asyncio.to_thread(_token, to)}"
        self.open += 1
        try:
            async with self._client().post(
                f"{to.upstream.url.rstrip('/')}/{call.endpoint}",
                data=call.body,
                headers=headers,
                allow_redirects=False,
                timeout=ClientTimeout(
                    total=None, sock_connect=CONNECT_SECONDS, sock_read=to.upstream.idle_seconds
                ),
            ) as response:
                if response.headers.get("Content-Encoding", "identity") != "identity":
                    raise to.broke("answers in an encoding that was not asked for")
                if response.status != HTTP_OK:
                    words = await _read(to, response, MAX_ERROR_BYTES)
                    raise relay.refusal(to, response.status, words)
                yield response
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise _failure(to, error) from error
        finally:
            self.open -= 1

    def _client(self) -> aiohttp.ClientSession:
        """The session. Each request has its own connection; closing it makes the upstream stop."""
        if not self._session:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=0, force_close=True),
                cookie_jar=aiohttp.DummyCookieJar(),
                auto_decompress=False,
            )
        return self._session


async def _read(to: Route, response: aiohttp.ClientResponse, limit_bytes: int) -> bytes:
    received = bytearray()
    async for piece in response.content.iter_any():
        received += piece
        if len(received) > limit_bytes:
            raise to.broke(f"answers with more than {limit_bytes} bytes")
    return bytes(received)


def _token(to: Route) -> str:
    """The bearer token of an upstream. Runs in a thread. Raises ConfigError."""
    path = paths.expanded(to.upstream.token_file)
    key = f"upstream.{to.name}.token_file"
    try:
        with paths.open_regular(path) as file:
            token = file.read(MAX_TOKEN_BYTES).decode("ascii").strip()
            private = not path.stat().st_mode & 0o077
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(
            f"{key}: {path} cannot be read: {unreadable(error)}.", param=key
        ) from error
    if not private:
        raise ConfigError(f"{key}: others may read {path}.", fix=f"chmod 600 {path}", param=key)
    if not token or not token.isprintable() or " " in token:
        raise ConfigError(
            f"{key}: {path} is not one line with a token.", fix="Write the token alone.", param=key
        )
    return token


def _failure(to: Route, error: Exception) -> LocalSpecError:
    """The error of a failed connection."""
    fix = f"Start it, or correct upstream.{to.name}.url."
    if isinstance(error, aiohttp.ClientConnectorCertificateError | aiohttp.ClientSSLError):
        inner = error.__cause__ or error
        words = inner.verify_message if isinstance(inner, ssl.SSLCertVerificationError) else inner
        return UpstreamFailed(
            f"{to.who} cannot be trusted: {words}.",
            fix="Start the daemon with SSL_CERT_FILE naming the authority that signed it.",
        )
    if isinstance(error, aiohttp.SocketTimeoutError):
        return UpstreamUnavailable(
            f"{to.who} sent nothing for {to.upstream.idle_seconds:g} s.",
            fix=f"Look into its log, or raise upstream.{to.name}.idle_seconds.",
        )
    if isinstance(error, aiohttp.ClientConnectorError):
        why = error.os_error
        named = os.strerror(why.errno) if why.errno and why.errno > 0 else why.strerror
        return UpstreamUnavailable(f"{to.who} does not answer: {named or why}.", fix=fix)
    if isinstance(error, aiohttp.ConnectionTimeoutError):
        return UpstreamUnavailable(f"{to.who} does not answer: timed out.", fix=fix)
    return to.broke("broke off in the middle of the answer")
