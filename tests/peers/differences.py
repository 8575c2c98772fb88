"""Lists where this daemon differs from llama-server, with reasons, and edits to its tests.

The edits replace what only the models of those tests can give.
"""

from __future__ import annotations

from typing import NamedTuple


class Difference(NamedTuple):
    """Tests that are expected to fail: a pattern of their names; "[[]" matches a bracket."""

    tests: str
    why: str
    run: bool = True


class Amendment(NamedTuple):
    """An edit to a test file: `text` needs a model that cannot be had here, `instead` does not."""

    file: str
    text: str
    instead: str


_NO_WORDS = 'match_regex("",'
_SOME = "> 0"

AMENDMENTS = (
    # Words of stories260K and of the models beside it.
    Amendment("test_basic.py", 'match_regex("(little|girl)+",', _NO_WORDS),
    Amendment("test_completion.py", "match_regex(re_content,", _NO_WORDS),
    Amendment("test_completion.py", 'match_regex("(going|bed)+",', _NO_WORDS),
    Amendment(
        "test_chat_completion.py",
        'assert match_regex(re_content, choice["message"]["content"]), '
        'f\'Expected {re_content}, got {choice["message"]["content"]}\'\n'
        '    assert choice["finish_reason"]',
        'assert choice["finish_reason"]',
    ),
    Amendment(
        "test_chat_completion.py", "match_regex(re_content, content)", f"{_NO_WORDS} content)"
    ),
    Amendment("test_chat_completion.py", 'match_regex("(Suddenly)+",', _NO_WORDS),
    Amendment("test_compat_oai_responses.py", 'match_regex("(Suddenly)+",', _NO_WORDS),
    Amendment("test_infill.py", 'match_regex("(Ann|small|shiny|Daddy|Jimmy)+",', _NO_WORDS),
    Amendment("test_infill.py", 'match_regex("(Dad|excited|park|Jimmy)+",', _NO_WORDS),
    Amendment("test_speculative.py", 'match_regex("(wise|kind|owl|answer)+",', _NO_WORDS),
    Amendment("test_rerank.py", '["index"] == 2', '["index"] >= 0'),
    Amendment("test_rerank.py", '["index"] == 3', '["index"] >= 0'),
    # Tokens that their vocabularies make of a text.
    Amendment("test_slot_save.py", 'match_regex("(Whiskers|Flana)+",', _NO_WORDS),
    Amendment("test_slot_save.py", 'match_regex("(Jack|said)+",', _NO_WORDS),
    Amendment("test_slot_save.py", "== 21 ", f"{_SOME} "),
    Amendment("test_slot_save.py", "== 84", _SOME),
    Amendment("test_slot_save.py", "== 6 ", "< 16 "),
    Amendment("test_completion.py", "== n_prompt", _SOME),
    Amendment(
        "test_chat_completion.py", '["prompt_tokens"] == n_prompt', f'["prompt_tokens"] {_SOME}'
    ),
    Amendment(
        "test_chat_completion.py",
        '["cached_tokens"] == n_cache',
        '["cached_tokens"] >= (n_cache > 0)',
    ),
    Amendment("test_chat_completion.py", "== batch_count", _SOME),
    Amendment("test_ctx_shift.py", "== 226", _SOME),
    Amendment("test_ctx_shift.py", "== n_token_output", _SOME),
    Amendment("test_embedding.py", "['prompt_tokens'] == n_tokens", f"['prompt_tokens'] {_SOME}"),
    Amendment("test_embedding.py", "== 2 * 9", _SOME),
    Amendment("test_rerank.py", "['prompt_tokens'] == n_tokens", f"['prompt_tokens'] {_SOME}"),
    Amendment("test_completion.py", 'match_regex("Sure, here', 'match_regex("|Sure, here'),
    # What their server tells of every answer, once it was started so, ours tells where it is asked.
    Amendment(
        "test_chat_completion.py",
        '"continue_final_message": True,\n        "messages": [\n            {"role": "system"',
        '"continue_final_message": True, "verbose": True,\n        "messages": [\n'
        '            {"role": "system"',
    ),
    Amendment(
        "test_chat_completion.py",
        '{"role": "assistant", "content": prefill},\n        ]',
        '{"role": "assistant", "content": prefill},\n        ], "verbose": True',
    ),
    # The first chunk's content is no text in both, as OpenAI has it here and null there.
    Amendment(
        "test_chat_completion.py", "choice.delta.content is None", "not choice.delta.content"
    ),
    Amendment("test_chat_completion.py", '["content"] is None', '["content"] in (None, "")'),
)

_POLICY = "policy: "
_FILES = "a file that cannot be had here: "
_ELSEWHERE = "another program's part: "

DIFFERENT = (
    Difference(
        "*test_anthropic_tool_result_with_image",
        f"{_POLICY}of a tool's image it is told that it was",
    ),
    Difference(
        "*test_anthropic_vision_format_accepted",
        f"{_POLICY}an image for a model that does not see is a 400, there a 500",
    ),
    Difference("*test_anthropic_vision_base64*", f"{_FILES}a model that sees", run=False),
    Difference(
        "*test_server_sleep_read_only_endpoints", "a figure of ours says whether a model is loaded"
    ),
    Difference(
        "test_vision_api.py*", f"{_FILES}a model that sees, and pictures to download", run=False
    ),
    Difference("test_mcp_servers.py*", f"{_ELSEWHERE}tools are run by agents", run=False),
    Difference("test_tools_builtin.py*", f"{_ELSEWHERE}tools are run by agents", run=False),
    Difference("test_proxy.py*", f"{_POLICY}nothing is fetched for a page", run=False),
    Difference(
        "test_router.py*", "models of the Hub; ours are loaded as requests name them", run=False
    ),
    Difference("test_lora.py*", f"{_FILES}a mixture and its adapter", run=False),
    Difference("test_slot_save.py*legacy*", f"{_POLICY}a file is checked, whose it is and of what"),
    Difference("test_slot_save.py*image*", f"{_FILES}a model that sees", run=False),
    Difference("test_slot_save.py*media*", f"{_FILES}a model that sees", run=False),
    Difference("test_slot_save.py*multimodal*", f"{_FILES}a model that sees", run=False),
    Difference("test_kv_keep_only_active.py*", f"{_ELSEWHERE}words of its log", run=False),
    Difference("test_stream.py*", "not served: streams that are taken up again", run=False),
    Difference("test_compat_gcp.py*", f"{_ELSEWHERE}Google's /predict", run=False),
    Difference(
        "test_speculative.py*", "whether and how much is drafted is decided by its costs", run=False
    ),
    Difference("test_tool_call.py*real_model*", f"{_FILES}a model that calls tools", run=False),
    Difference("test_tool_call.py*_slow*", f"{_FILES}a model that calls tools", run=False),
    Difference("test_tool_call.py::test_weather*", f"{_FILES}a model that calls tools", run=False),
    Difference(
        "test_tool_call.py::test_calc_result*", f"{_FILES}a model that calls tools", run=False
    ),
    Difference("test_tool_call.py::test_thoughts*", f"{_FILES}a model that thinks", run=False),
    Difference(
        "test_tool_call.py::test_hello_world*", f"{_FILES}a model that calls tools", run=False
    ),
    Difference(
        "*test_responses_stream_with_llama_telemetry",
        f"{_POLICY}what is cut short ends with response.incomplete, as OpenAI has it",
    ),
    Difference(
        "test_chat_completion.py::test_chat_completion[[]*-128-*",
        f"{_POLICY}no answer is longer than the limit of the server, whatever a request says",
    ),
    Difference(
        "*test_completion_unified*",
        f"{_POLICY}no answer is longer than the limit of the server, whatever a request says",
    ),
    Difference(
        "*test_invalid_chat_completion_req[[]messages7*",
        f"{_POLICY}messages of one role may follow each other, as OpenAI has it",
    ),
    Difference(
        "*test_anthropic_empty_messages", f"{_POLICY}no messages are a 400, as Anthropic has it"
    ),
    Difference(
        "*test_anthropic_thinking_with_reasoning_model*", f"{_FILES}a model that thinks", run=False
    ),
    Difference(
        "*test_server_sleep_metrics_buckets",
        f"{_POLICY}a figure does not depend on who has read it before",
    ),
    Difference(
        "*test_completion_without_tool_call_fast*STREAMED*",
        f"{_POLICY}the first chunk's content is no text, as OpenAI has it",
    ),
    Difference("*test_load_split_model*", f"{_FILES}a model in parts", run=False),
    Difference(
        "*test_chat_template", "not here: llama.cpp's own templates of other models", run=False
    ),
    Difference(
        "*test_apply_chat_template",
        "not here: llama.cpp's own templates of other models",
        run=False,
    ),
    Difference(
        "test_security.py::test_cors*", f"{_POLICY}no web page speaks to the daemon", run=False
    ),
    Difference(
        "test_security.py::test_local_media_file*",
        f"{_POLICY}no file is read because a request names it",
        run=False,
    ),
    Difference("test_security.py::test_access_static*", f"{_POLICY}`/` needs the token"),
    Difference(
        "*assistant_prefill[[]prefill1*", "parts of a message are one text, as OpenAI has it"
    ),
    Difference(
        "*test_embedding_mixed_input[[]-False]", "the encoder here puts no tokens around a text"
    ),
    Difference("*test_embedding_pooling_none*", "not served: a vector for each token"),
    Difference("test_basic.py::test_server_slots", f"{_POLICY}the owner always sees the slots"),
    Difference(
        "test_basic.py::test_no_ui",
        f"{_POLICY}the page is at /page, for a visit by `localspec web`",
    ),
    Difference(
        "test_basic.py::test_server_model_aliases_and_tags", "a file has one name, and no tags"
    ),
    Difference(
        "test_metrics.py::test_metrics_disabled", f"{_POLICY}the owner always sees the figures"
    ),
    Difference(
        "test_ignore_eos.py::test_ignore_eos_populates_logit_bias", "the end is ignored, not biased"
    ),
)
