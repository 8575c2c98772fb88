"""The table of routes: every path that is served, with what it takes and what it gives.

The application is made of it (`app.py`), and so is the OpenAPI document (`openapi.py`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from localspec.prefixes.overview import Cleared, Overview
from localspec_daemon.api import (
    anthropic,
    infill,
    llama_server,
    ollama,
    openai,
    openai_types,
    own,
    responses,
)
from localspec_daemon.api.dialect import Dialect
from localspec_daemon.api.framing import LINES, UNENDING_EVENTS
from localspec_daemon.api.types import anthropic as anthropic_answers
from localspec_daemon.api.types import llama_server as llama_answers
from localspec_daemon.api.types import ollama as ollama_answers
from localspec_daemon.api.types import openai as openai_answers
from localspec_daemon.api.types import own as own_answers
from localspec_daemon.api.types import responses as responses_answers
from localspec_daemon.http import (
    embeddings,
    lora,
    models,
    ollama_models,
    openapi,
    own_endpoints,
    ranking,
    slot_files,
    thoughts,
    tokens,
)
from localspec_daemon.http.route import OLLAMA, Route, Stream, both, family
from localspec_daemon.http.serve import text_handler
from localspec_daemon.page import colours, conversations, key
from localspec_daemon.page import routes as page
from localspec_daemon.supervisor.status import Status


def _text(
    dialect: Dialect,
    takes: type[msgspec.Struct],
    gives: Any,
    frame: Any,
    about: str,
    *paths: str,
) -> Iterator[Route]:
    """The endpoints that answer with text in that dialect."""
    stream = Stream(dialect.framing, frame)
    for path in paths:
        handler = (
            ollama_models.ollama_handler(dialect)
            if family(path) is OLLAMA
            else text_handler(dialect)
        )
        yield Route("POST", path, handler, about, takes, gives, stream, loads=True)


TEXTS = (
    *_text(
        openai.CHAT,
        openai_types.ChatRequest,
        openai_answers.ChatCompletion,
        openai_answers.ChatChunk,
        "Answers of a chat.",
        "/v1/chat/completions",
        "/chat/completions",
    ),
    *_text(
        openai.COMPLETION,
        openai_types.CompletionRequest,
        openai_answers.TextCompletion,
        openai_answers.TextChunk,
        "Texts that go on with prompts, or fill their middles.",
        "/v1/completions",
    ),
    *_text(
        openai.FIM,
        openai_types.CompletionRequest,
        openai_answers.ChatCompletion,
        openai_answers.ChatChunk,
        "Middles between two pieces of code, in the shape of a chat, as Mistral has it.",
        "/v1/fim/completions",
        "/fim/completions",
    ),
    *_text(
        responses.RESPONSES,
        responses.ResponsesRequest,
        responses_answers.Response,
        responses_answers.ResponseEvent,
        "A response; nothing is kept.",
        "/v1/responses",
        "/responses",
    ),
    *_text(
        anthropic.MESSAGES,
        anthropic.MessagesRequest,
        anthropic_answers.AnthropicMessage,
        anthropic_answers.MessageEvent,
        "A message of the assistant.",
        "/v1/messages",
    ),
    *_text(
        llama_server.COMPLETION,
        llama_server.LlamaCompletionRequest,
        llama_answers.LlamaCompletions,
        llama_answers.LlamaCompletion,
        "Texts that go on with prompts.",
        "/completion",
        "/completions",
        "/v1/completion",
    ),
    *_text(
        infill.INFILL,
        infill.InfillRequest,
        llama_answers.LlamaCompletions,
        llama_answers.LlamaCompletion,
        "The middle between two pieces of code.",
        "/infill",
        "/v1/infill",
    ),
    *_text(
        ollama.CHAT,
        ollama.OllamaChatRequest,
        ollama_answers.OllamaChat,
        ollama_answers.OllamaChat,
        "The answer of a chat; without messages the model is loaded, or let go.",
        "/api/chat",
    ),
    *_text(
        ollama.GENERATE,
        ollama.OllamaGenerateRequest,
        ollama_answers.OllamaText,
        ollama_answers.OllamaText,
        "The answer to a prompt; without one the model is loaded, or let go.",
        "/api/generate",
    ),
)

QUESTIONS = (
    Route(
        "POST",
        "/v1/messages/count_tokens",
        tokens.count_tokens,
        "How many tokens the prompt of a message has.",
        anthropic.MessagesRequest,
        anthropic_answers.TokenCount,
        loads=True,
    ),
    *both(
        Route(
            "POST",
            "/chat/completions/input_tokens",
            tokens.chat_tokens,
            "How many tokens the prompt of a chat has.",
            openai_types.ChatRequest,
            responses_answers.InputTokens,
            loads=True,
        )
    ),
    *both(
        Route(
            "POST",
            "/responses/input_tokens",
            tokens.response_tokens,
            "How many tokens the input of a response has.",
            responses.ResponsesRequest,
            responses_answers.InputTokens,
            loads=True,
        )
    ),
    *both(
        Route(
            "POST",
            "/tokenize",
            tokens.tokenize,
            "A text in tokens.",
            tokens.TokenizeRequest,
            llama_answers.Tokens,
            loads=True,
        )
    ),
    *both(
        Route(
            "POST",
            "/detokenize",
            tokens.detokenize,
            "The text of tokens.",
            tokens.DetokenizeRequest,
            llama_answers.Content,
            loads=True,
        )
    ),
    *both(
        Route(
            "POST",
            "/apply-template",
            tokens.apply_template,
            "The prompt that a chat becomes.",
            openai_types.ChatRequest,
            llama_answers.Prompt,
            loads=True,
        )
    ),
)

EMBEDDINGS = (
    *both(
        Route(
            "POST",
            "/embeddings",
            embeddings.openai_vectors,
            "A vector for each text.",
            embeddings.EmbeddingRequest,
            openai_answers.EmbeddingList,
            loads=True,
        )
    ),
    *both(
        Route(
            "POST",
            "/embedding",
            embeddings.llama_vectors,
            "A vector for each text.",
            embeddings.EmbeddingRequest,
            list[llama_answers.LlamaEmbedding],
            loads=True,
        )
    ),
    *(
        route
        for path in ("/rerank", "/reranking")
        for route in both(
            Route(
                "POST",
                path,
                ranking.rank,
                "Documents by how well they answer a query.",
                ranking.RankRequest,
                llama_answers.Ranks,
                loads=True,
            )
        )
    ),
    Route(
        "POST",
        "/api/embed",
        embeddings.ollama_vectors,
        "A vector for each text.",
        embeddings.OllamaEmbedRequest,
        ollama_answers.OllamaEmbeddings,
        loads=True,
    ),
    Route(
        "POST",
        "/api/embeddings",
        embeddings.ollama_vector,
        "The vector of one text.",
        embeddings.OllamaEmbeddingRequest,
        ollama_answers.OllamaEmbedding,
        loads=True,
    ),
)

MODELS = (
    *both(Route("GET", "/models", models.models, "The models.", gives=openai_answers.ModelList)),
    *both(
        Route(
            "GET",
            "/models/sse",
            models.changes,
            "What every model is doing, now and whenever that changes.",
            stream=Stream(UNENDING_EVENTS, llama_answers.ModelEvent),
        )
    ),
    Route("GET", "/v1/models/{id:.+}", models.model, "One model.", gives=openai_answers.ModelCard),
    *both(
        Route(
            "POST",
            "/models/load",
            models.load,
            "Begin to load a model.",
            models.NamedModel,
            own_answers.ModelStatusWord,
        )
    ),
    *both(
        Route(
            "POST",
            "/models/unload",
            models.unload,
            "Give a model's memory back once its open requests are finished.",
            models.NamedModel,
            own_answers.ModelStatusWord,
        )
    ),
    *both(
        Route(
            "GET",
            "/props",
            models.props,
            "What there is to know of a model.",
            gives=llama_answers.Props,
            queries=("model",),
        )
    ),
    *both(
        Route(
            "GET",
            "/slots",
            models.slots,
            "How many requests are answered.",
            gives=list[llama_answers.Slot],
            queries=("model",),
        )
    ),
    *both(
        Route(
            "POST",
            "/slots/{id}",
            slot_files.slot,
            "Save what a slot holds, restore it, or erase it.",
            slot_files.SlotRequest,
            llama_answers.SlotDone,
            queries=("action", "model"),
            loads=True,
        )
    ),
    *both(
        Route(
            "GET",
            "/lora-adapters",
            lora.adapters,
            "The LoRA adapters of a model.",
            gives=list[llama_answers.LoraAdapter],
            queries=("model",),
        )
    ),
    *both(
        Route(
            "POST",
            "/lora-adapters",
            lora.set_scales,
            "Scales of LoRA adapters for requests that name none.",
            list[openai_types.LoraScale],
            llama_answers.Done,
            queries=("model",),
        )
    ),
)

DAEMON = (
    *both(
        Route(
            "GET",
            "/health",
            own_endpoints.health,
            "Whether requests make progress. Needs no token.",
            gives=llama_answers.Health,
            also=((503, llama_answers.Unhealthy),),
        )
    ),
    Route(
        "GET",
        "/metrics",
        own_endpoints.prometheus,
        "Figures for Prometheus.",
        gives="text/plain",
        queries=("model",),
    ),
    Route("GET", "/v1/status", own_endpoints.status, "All that the daemon knows.", gives=Status),
    Route(
        "GET",
        "/v1/cache",
        own_endpoints.cache,
        "What is kept of prompts that were read.",
        gives=Overview,
    ),
    Route(
        "DELETE",
        "/v1/cache",
        own_endpoints.clear_cache,
        "Forget all of that, on disk and in memory.",
        gives=Cleared,
    ),
    Route(
        "POST",
        "/v1/replay",
        own_endpoints.replay,
        "The target's and drafters' probabilities for a given text.",
        own.ReplayRequest,
        own_answers.Replay,
        loads=True,
    ),
    Route("POST", "/v1/web", page.visit, "An address of the page.", gives=own_answers.Address),
    Route("GET", "/openapi.json", openapi.serve, "This document.", gives=dict[str, Any]),
    *page.gets(),
    *key.ROUTES,
    *colours.ROUTES,
    *conversations.ROUTES,
)

ABOUT_OLLAMA = (
    Route("GET", "/", ollama_models.root, "A word, for those who look for it.", gives="text/plain"),
    Route("GET", "/api/version", ollama_models.version, "A version.", gives=ollama_answers.Version),
    Route("GET", "/api/tags", ollama_models.tags, "The models.", gives=ollama_answers.OllamaCards),
    Route("GET", "/api/ps", ollama_models.ps, "Loaded models.", gives=ollama_answers.OllamaCards),
    Route(
        "POST",
        "/api/show",
        ollama_models.show,
        "What one model is and can do.",
        ollama_models.NamedRequest,
        ollama_answers.ModelDetails,
    ),
    Route(
        "POST",
        "/api/pull",
        ollama_models.pull,
        "Success for what is here; nothing is fetched.",
        ollama_models.NamedRequest,
        ollama_answers.PullProgress,
        Stream(LINES, ollama_answers.PullProgress),
    ),
    Route(
        "DELETE",
        "/api/delete",
        ollama_models.delete,
        "Nothing is deleted; the error has the command.",
        ollama_models.NamedRequest,
    ),
)

TABLE = (*TEXTS, *QUESTIONS, *thoughts.ROUTES, *EMBEDDINGS, *MODELS, *DAEMON, *ABOUT_OLLAMA)
