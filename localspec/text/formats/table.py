"""The formats of all families, as data; a new family is a new entry.

Sources: calls of a history as written by the chat templates of llama.cpp's `models/templates`, the
parsers of llama.cpp and vLLM, and the models' cards.
"""

from __future__ import annotations

from localspec.text.formats.parts import Element, Format, Heads, Hole, Maybe, Pair, Way
from localspec.text.formats.ways import (
    ACTION,  # fmt: skip
    ACTIONS,
    BARE_LIST,
    BEGIN,
    CODER,
    CODER_BARE,
    DSML,
    FUNCTION_GEMMA,
    GEMMA4,
    GLM,
    HARMONY_CALLS,
    HUNYUAN3,
    HY,
    ID,
    KEY,
    KIMI,
    KIMI3,
    KIMI_ONE,
    LFM2,
    LLAMA,
    LOOSE,
    MINIMAX3,
    MISSPELLED,
    NAME,
    R1,
    R1_BARE,
    SEED,
    TAGGED,
    THINK,
    V31,
    VALUE,
    dsml,
    invoke,
    listed,
)

FORMATS = (
    Format(
        "gpt-oss",
        (),
        thoughts=(),
        heads=Heads(
            begins=("<|start|>", "<|channel|>"),
            goes_on=("<|channel|>", " to=", "to="),
            ends="<|message|>",
            call=r"to=(?:functions\.)?([\w.-]+)",
            thought=r"analysis[^|]*(<\|message\|>)$",
            closings=("<|end|>", "<|call|>", "<|return|>"),
            thinks="<|channel|>analysis<|message|>",
            before="<|channel|>commentary<|message|>",
            says="<|channel|>final<|message|>",
            calls="<|channel|>commentary to=functions.{name} <|constrain|>json<|message|>",
            also=HARMONY_CALLS,
            again="<|end|><|start|>assistant",
        ),
        signs=("<|channel|>",),
        marks=("<|constrain|>",),
    ),
    Format(
        "muse-glimmer",
        (invoke("atem:function_calls", "atem:"),),
        thoughts=(),
        heads=Heads(
            begins=("<|start|>assistant",),
            goes_on=(" to=", "to=", "<|message|>"),
            ends="<|message|>",
            thought=r"to=self\b",
            closings=("<|eom|>", "<|eot|>"),
            thinks=" to=self<|message|>",
            says=" to=user<|message|>",
            calls=" to={name}<|message|>",
            again="<|eom|><|start|>assistant",
        ),
    ),
    Format(
        "gemma4",
        GEMMA4,
        thoughts=(Pair("<|channel>thought\n", "<channel|>", own=True),),
        dropped=("<|tool_response>",),
        signs=("<|tool_call>call:",),
        marks=("<|channel>", '<|"|>'),
    ),
    Format(
        "functiongemma",
        FUNCTION_GEMMA,
        dropped=("<start_function_response>",),
        signs=("<start_function_call>",),
        marks=("<escape>",),
    ),
    Format(
        "deepseek-v3.2",
        (dsml("function_calls"), dsml("tool_calls")),
        marks=(DSML,),
    ),
    Format(
        "deepseek-v4",
        (dsml("tool_calls"), dsml("function_calls")),
        marks=(DSML,),
    ),
    Format("deepseek-v3.1", (V31, R1, R1_BARE), dropped=MISSPELLED),
    Format("deepseek", (R1, V31, R1_BARE), dropped=MISSPELLED, signs=(BEGIN,)),
    Format("kimi-k2", (KIMI, KIMI_ONE), signs=("<|tool_calls_section_begin|>",)),
    Format(
        "kimi-k3",
        KIMI3,
        thoughts=(Pair("<|open|>think<|sep|>", "<|close|>think<|sep|>", own=True),),
        words=(Pair("<|open|>response<|sep|>", "<|close|>response<|sep|>", own=True),),
        dropped=("<|close|>message<|sep|>", "<|end_of_msg|>"),
        marks=("<|open|>", "<|close|>", "<|sep|>"),
    ),
    Format(
        "minimax-m2",
        (
            invoke("minimax:tool_call", ""),
            listed("<minimax:tool_call>", "</minimax:tool_call>", ""),
        ),
        signs=("<minimax:tool_call>",),
    ),
    Format(
        "minimax-m3",
        (
            Way(
                (
                    f'{MINIMAX3}<invoke name="',
                    NAME,
                    '">',
                    Hole.TREE,
                    f"{MINIMAX3}</invoke>\n",
                ),
                opening=f"{MINIMAX3}<tool_call>\n",
                closing=f"{MINIMAX3}</tool_call>",
                element=Element((f"{MINIMAX3}<", KEY, ">", VALUE, f"{MINIMAX3}</", KEY, ">")),
            ),
        ),
        thoughts=(Pair("<mm:think>", "</mm:think>"),),
        marks=(MINIMAX3,),
    ),
    Format(
        "minimax-m1",
        (listed("<tool_calls>\n", "\n</tool_calls>", "\n"),),
        thinks=True,
    ),
    Format(
        "command",
        (ACTIONS, ACTION),
        thoughts=(Pair("<|START_THINKING|>", "<|END_THINKING|>", own=True),),
        words=(
            Pair("<|START_RESPONSE|>", "<|END_RESPONSE|>", own=True),
            Pair("<|START_TEXT|>", "<|END_TEXT|>", own=True),
        ),
        signs=("<|START_ACTION|>",),
    ),
    Format(
        "command-r-plus",
        (
            Way(
                (Hole.CALL,),
                opening="Action:\n```json\n[\n    ",
                between=",\n    ",
                closing="\n]```",
                keys=("tool_name", "parameters"),
            ),
        ),
        thoughts=(),
        pretends=frozenset({"directly_answer", "directly-answer"}),
    ),
    Format(
        "mistral-named",
        (
            Way(
                (
                    "[TOOL_CALLS]",
                    NAME,
                    Maybe(("[CALL_ID]", ID)),
                    Maybe(("[ARGS]",)),
                    Hole.OBJECT,
                )
            ),
            listed("[TOOL_CALLS][", "]"),
        ),
        thoughts=(Pair("[THINK]", "[/THINK]"), *THINK),
        signs=("[ARGS]",),
        marks=("[TOOL_CALLS]",),
        ids="nine",
    ),
    Format(
        "mistral",
        (
            listed("[TOOL_CALLS][", "]"),
            Way(
                (
                    "[TOOL_CALLS]",
                    NAME,
                    Maybe(("[CALL_ID]", ID)),
                    Maybe(("[ARGS]",)),
                    Hole.OBJECT,
                )
            ),
            Way((Hole.CALL,), opening="[TOOL_CALLS]"),
            BARE_LIST,
        ),
        thoughts=(Pair("[THINK]", "[/THINK]"), *THINK),
        signs=("[TOOL_CALLS]",),
        marks=("[TOOL_CALLS]", "[ARGS]"),
        ids="nine",
    ),
    Format(
        "apertus",
        (
            Way(
                (Hole.PAIR,), opening="<|tools_prefix|>[", between=", ", closing="]<|tools_suffix|>"
            ),
            listed("<|tools_prefix|>[", "]<|tools_suffix|>"),
        ),
        thoughts=(Pair("<|inner_prefix|>", "<|inner_suffix|>", own=True),),
        marks=("<|tools_prefix|>", "<|tools_suffix|>"),
    ),
    Format(
        "nemotron-v2",
        (
            listed("<TOOLCALL>[", "]</TOOLCALL>"),
            listed("<TOOLCALL>", "</TOOLCALL>", ""),
        ),
        signs=("<TOOLCALL>",),
    ),
    Format(
        "apriel",
        (listed("<tool_calls>[", "]</tool_calls>"),),
        thoughts=(Pair("Here are my reasoning steps:\n", "[BEGIN FINAL RESPONSE]"),),
        words=(Pair("[BEGIN FINAL RESPONSE]", "[END FINAL RESPONSE]"),),
        signs=("[BEGIN FINAL RESPONSE]",),
    ),
    Format(
        "hunyuan",
        (
            listed("<tool_calls>[", "]</tool_calls>"),
            listed("<tool_calls>", "</tool_calls>", "\n"),
        ),
        words=(Pair("<answer>", "</answer>"),),
        signs=("<tool_calls>[",),
    ),
    Format(
        "hunyuan-3",
        HUNYUAN3,
        thoughts=(Pair(f"<think{HY}>", f"</think{HY}>"),),
    ),
    Format(
        "phi4-mini",
        (
            listed("functools[", "]"),
            listed("<|tool_call|>[", "]<|/tool_call|>"),
            listed("<|tool_call|>", "<|/tool_call|>", ""),
        ),
        signs=("functools[", "<|/tool|>"),
        marks=("<|tool_call|>", "<|/tool_call|>"),
    ),
    Format(
        "granite-3",
        (
            listed("<|tool_call|>[", "]"),
            Way((Hole.CALL,), opening="<|tool_call|>", between=", "),
            Way((Hole.CALL,), opening="<tool_call>[", between=", ", closing="]", known=True),
        ),
        words=(Pair("<response>", "</response>"),),
        signs=("<|tool_call|>",),
        marks=("<|tool_call|>",),
    ),
    Format(
        "solar",
        (
            Way(
                (
                    "<|tool_call:begin|>",
                    ID,
                    "<|tool_call:name|>",
                    NAME,
                    "<|tool_call:args|>",
                    Hole.OBJECT,
                    "<|tool_call:end|>",
                ),
                opening="<|tool_calls|>",
                closing="<|calls|>",
            ),
        ),
        thoughts=(Pair("<|think|>", "<|end|>", own=True),),
        words=(Pair("<|content|>", "<|end|>", own=True),),
        dropped=("<|begin|>assistant",),
        marks=("<|begin|>",),
    ),
    Format(
        "gigachat",
        (
            Way(("function call<|role_sep|>\n", Hole.CALL), between="<|message_sep|>\n\n"),
            Way(("<|function_call|>", Hole.CALL)),
        ),
        dropped=("<|message_sep|>",),
        marks=("<|role_sep|>",),
    ),
    Format(
        "gigachat-3.1",
        (
            Way(("<|function_call|>", Hole.CALL)),
            Way(("function call<|role_sep|>\n", Hole.CALL)),
        ),
        dropped=("<|message_sep|>",),
    ),
    Format(
        "functionary-3.2",
        (
            Way((">>>", NAME, "\n", Hole.OBJECT), known=True),
            Way((NAME, "\n", Hole.OBJECT), known=True, first=True),
        ),
        thoughts=(),
        words=(Pair("all\n", ""),),
        dropped=(">>>all\n",),
    ),
    Format(
        "functionary-3.1",
        (
            Way(("<function=", NAME, ">", Hole.OBJECT, "</function>")),
            Way((Hole.CALL,), opening="<|python_tag|>", known=True),
        ),
        thoughts=(),
    ),
    Format(
        "lfm2",
        LFM2,
        signs=("<|tool_call_start|>", "<|tool_list_start|>", "List of tools: ["),
        marks=("<|tool_call_start|>", "<|tool_call_end|>"),
    ),
    Format(
        "olmo3",
        (
            Way(
                (NAME, "(", Hole.KEYWORDS, ")"),
                opening="<function_calls>\n",
                between="\n",
                closing="\n</function_calls>",
            ),
            listed("<function_calls>\n", "\n</function_calls>", "\n"),
        ),
        signs=("<function_calls>",),
    ),
    Format(
        "minicpm5",
        (
            Way(
                ('<function name="', NAME, '">', Hole.ELEMENTS, "</function>"),
                between="\n",
                element=Element(('<param name="', KEY, '">', VALUE, "</param>"), cdata=True),
            ),
        ),
    ),
    Format(
        "seed-oss",
        (
            Way(
                (
                    "<seed:tool_call>\n",
                    "<function=",
                    NAME,
                    ">\n",
                    Hole.ELEMENTS,
                    "</function>",
                    "\n</seed:tool_call>",
                ),
                between="\n",
                element=SEED,
            ),
            Way(
                (
                    "<function=",
                    NAME,
                    ">\n",
                    Hole.ELEMENTS,
                    "</function>",
                    Maybe(("</seed:tool_call>",)),
                ),
                known=True,
                element=SEED,
            ),
        ),
        thoughts=(
            Pair("<seed:think>", "</seed:think>"),
            Pair("<seed:cot_budget_reflect>", "</seed:cot_budget_reflect>"),
        ),
    ),
    Format("glm", (GLM, TAGGED)),
    Format("qwen3-coder", (CODER, CODER_BARE, TAGGED), signs=("<function=",)),
    Format(
        "llama4",
        LLAMA,
        dropped=("<|python_start|>", "<|python_end|>"),
        signs=("<|header_start|>",),
        offers=True,
    ),
    Format("llama3", LLAMA, signs=("<|start_header_id|>",), offers=True),
    Format(
        "glm-4",
        (
            Way(("<|assistant|>", NAME, "\n", Hole.OBJECT), known=True),
            Way((NAME, "\n", Hole.OBJECT), known=True, first=True),
        ),
        signs=("[gMASK]<sop>",),
        offers=True,
    ),
    Format(
        "ernie",
        (TAGGED, CODER, *LOOSE),
        words=(Pair("<response>", "</response>"),),
        signs=("<response>",),
    ),
    Format("hermes", (TAGGED, CODER, *LOOSE), signs=("<tool_call>",)),
)
"""Of formats that read a template's call equally well, and of those whose signs its source holds,
the first one is taken."""

GENERIC = Format("generic", (TAGGED, CODER, *LOOSE))
"""The format for templates that show no functions: the system message describes these."""
