"""Notations of calls that are long or shared by families; parts of `table.py`."""

from __future__ import annotations

from dataclasses import replace

from localspec.text.formats.parts import Element, Hole, Maybe, Pair, Way

NAME, ID, INDEX = Hole.NAME, Hole.ID, Hole.INDEX
KEY, VALUE, TYPE = Hole.KEY, Hole.VALUE, Hole.TYPE

THINK = (Pair("<think>", "</think>"),)


def listed(opening: str, closing: str, between: str = ", ") -> Way:
    """Calls as JSON objects between two marks."""
    return Way((Hole.CALL,), opening=opening, between=between, closing=closing)


# gpt-oss: heads of calls. The function stands before or behind the channel; JSON has several names.
_KINDS = ("", " <|constrain|>json", "<|constrain|>json", " json", " code")
HARMONY_CALLS = tuple(
    head.replace("CHANNEL", f"<|channel|>{channel}") + f"{kind}<|message|>"
    for head in ("CHANNEL to=functions.{name}", " to=functions.{name}CHANNEL")
    for channel in ("commentary", "analysis")
    for kind in _KINDS
)

# Hermes, and many trained on its format: JSON between tags.
TAGGED = Way(("<tool_call>\n", Hole.CALL, "\n</tool_call>"), between="\n")
FENCED = Way((Hole.CALL,), opening="```json\n", closing="\n```", known=True)
BARE = Way((Hole.CALL, Maybe(("</tool_call>",))), known=True)
BARE_LIST = Way((Hole.CALL,), opening="[", between=", ", closing="]", known=True, first=True)
LOOSE = (
    Way((Hole.CALL,), opening="<tool_call>[", between=", ", closing="]</tool_call>"),
    Way((Hole.CALL,), opening="<function_call>", closing="</function_call>"),
    Way((Hole.CALL,), opening="<tools>", closing="</tools>", known=True),
    *(
        Way((Hole.CALL,), opening=f"<{word}>", closing=f"</{word}>", known=True, odd=True)
        for word in ("tool", "json", "JSON", "xml", "response")
    ),
    Way(("<function=", NAME, ">", Hole.OBJECT, "</function>"), known=True, odd=True),
    Way(('<function name="', NAME, '">', Hole.OBJECT, "</function>"), known=True, odd=True),
    FENCED,
    BARE,
    BARE_LIST,
)

# Qwen3-Coder: an element for each argument.
PARAMETER = Element(("<parameter=", KEY, ">\n", VALUE, "\n</parameter>\n"), line=True)
CODER = Way(
    ("<tool_call>\n", "<function=", NAME, ">\n", Hole.ELEMENTS, "</function>", "\n</tool_call>"),
    between="\n",
    element=PARAMETER,
)
CODER_BARE = Way(
    ("<function=", NAME, ">\n", Hole.ELEMENTS, "</function>", Maybe(("</tool_call>",))),
    known=True,
    element=PARAMETER,
)

# GLM and those that write `<arg_key>`; how many line breaks there are differs from model to model.
ARGUMENT = Element(("<arg_key>", KEY, "</arg_key>\n", "<arg_value>", VALUE, "</arg_value>\n"))
GLM = Way(
    ("<tool_call>", NAME, "\n", Hole.ELEMENTS, "</tool_call>"), between="\n", element=ARGUMENT
)

# A JSON list of calls between marks.
ACTIONS = Way(
    (Hole.CALL,),
    opening="<|START_ACTION|>[\n    ",
    between=",\n    ",
    closing="\n]<|END_ACTION|>",
    keys=("tool_name", "parameters"),
)
ACTION = Way(
    (Hole.CALL,),
    opening="<|START_ACTION|>",
    closing="<|END_ACTION|>",
    keys=("tool_name", "parameters"),
)

# DeepSeek V3.2 and V4: tags with a token of their own in them.
DSML = "｜DSML｜"  # noqa: RUF001 - the model's own letters


def dsml(block: str) -> Way:
    """Calls in a block of that name, each value with its type."""
    return Way(
        (f'<{DSML}invoke name="', NAME, '">\n', Hole.ELEMENTS, f"</{DSML}invoke>"),
        opening=f"<{DSML}{block}>\n",
        between="\n",
        closing=f"\n</{DSML}{block}>",
        element=Element(
            (f'<{DSML}parameter name="', KEY, '"', TYPE, ">", VALUE, f"</{DSML}parameter>\n"),
            text_type=' string="true"',
            other_type=' string="false"',
        ),
    )


# DeepSeek R1 and V3: the arguments in a fence; V3.1: without one.
BEGIN, END = "<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>"  # noqa: RUF001
CALL, SEP, CLOSE = "<｜tool▁call▁begin｜>", "<｜tool▁sep｜>", "<｜tool▁call▁end｜>"  # noqa: RUF001
MISSPELLED = (
    "<｜tool▁calls｜>",  # noqa: RUF001
    "<｜tool_calls_begin｜>",  # noqa: RUF001
    "<｜tool calls begin｜>",  # noqa: RUF001
)
"""BEGIN as distilled models write it now and then; a call behind it has its own mark."""
R1 = Way(
    (CALL, "function", SEP, NAME, "\n```json\n", Hole.OBJECT, "\n```", CLOSE),
    opening=BEGIN,
    between="\n",
    closing=END,
)
V31 = Way((CALL, NAME, SEP, Hole.OBJECT, CLOSE), opening=BEGIN, closing=END)

R1_BARE = Way((CALL, "function", SEP, NAME, "\n", Hole.OBJECT, CLOSE), opening=BEGIN, closing=END)

KIMI = Way(
    (
        "<|tool_call_begin|>",
        Maybe(("functions.",)),
        NAME,
        Maybe((":", INDEX)),
        "<|tool_call_argument_begin|>",
        Hole.OBJECT,
        "<|tool_call_end|>",
    ),
    opening="<|tool_calls_section_begin|>",
    closing="<|tool_calls_section_end|>",
)

# Kimi with the marks that it writes now and then.
KIMI_ONE = replace(KIMI, opening="<|tool_call_section_begin|>", closing="<|tool_call_section_end|>")


def invoke(tag: str, inner: str) -> Way:
    """XML tags with names in attributes."""
    return Way(
        (f'<{inner}invoke name="', NAME, '">\n', Hole.ELEMENTS, f"</{inner}invoke>"),
        opening=f"<{tag}>\n",
        between="\n",
        closing=f"\n</{tag}>",
        element=Element((f'<{inner}parameter name="', KEY, '">', VALUE, f"</{inner}parameter>\n")),
    )


MINIMAX3 = "]<]minimax[>["
HY = ":opensource"
HUNYUAN3 = (
    Way(
        (
            f"<tool_call{HY}>",
            NAME,
            f"<tool_sep{HY}>\n",
            Hole.ELEMENTS,
            f"</tool_call{HY}>",
        ),
        opening=f"<tool_calls{HY}>\n",
        between="\n",
        closing=f"\n</tool_calls{HY}>",
        element=Element(
            (
                f"<arg_key{HY}>",
                KEY,
                f"</arg_key{HY}>\n<arg_value{HY}>",
                VALUE,
                f"</arg_value{HY}>\n",
            )
        ),
    ),
    Way(
        (f"<tool_call{HY}>", NAME, f"</tool_call{HY}>"),
        opening=f"<tool_calls{HY}>\n",
        between="\n",
        closing=f"\n</tool_calls{HY}>",
        known=True,
    ),
)

SEED = Element(("<parameter=", KEY, ">", VALUE, "</parameter>\n"))

# Kimi K3: an element for each argument with its type, or all of them as JSON.
KIMI3 = (
    Way(
        (
            '<|open|>call tool="',
            NAME,
            '" index="',
            INDEX,
            '"<|sep|>',
            Hole.ELEMENTS,
            "<|close|>call<|sep|>",
        ),
        opening="<|open|>tools<|sep|>",
        closing="<|close|>tools<|sep|>",
        element=Element(
            (
                '<|open|>argument key="',
                KEY,
                '" type="',
                TYPE,
                '"<|sep|>',
                VALUE,
                "<|close|>argument<|sep|>",
            ),
            text_type="string",
            other_type="json",
        ),
    ),
    Way(
        (
            '<|open|>call tool="',
            NAME,
            '" index="',
            INDEX,
            '"<|sep|>',
            '<|open|>json type="object"<|sep|>',
            Hole.OBJECT,
            "<|close|>json<|sep|><|close|>call<|sep|>",
        ),
        opening="<|open|>tools<|sep|>",
        closing="<|close|>tools<|sep|>",
    ),
)

# LFM2: Python's keyword arguments, or JSON, with or without the list around them.
LFM2 = (
    Way(
        (NAME, "(", Hole.KEYWORDS, ")"),
        opening="<|tool_call_start|>[",
        between=", ",
        closing="]<|tool_call_end|>",
    ),
    listed("<|tool_call_start|>[", "]<|tool_call_end|>"),
    Way(
        (NAME, "(", Hole.KEYWORDS, ")"),
        opening="<|tool_call_start|>",
        between=", ",
        closing="<|tool_call_end|>",
    ),
    listed("<|tool_call_start|>", "<|tool_call_end|>", ""),
)

# Gemma: arguments in a notation of its own, whose quotes are marks.
GEMMA4 = (
    Way(("<|tool_call>", "call:", NAME, Hole.NOTED, "<tool_call|>")),
    Way(("<|tool_call>", NAME, Hole.NOTED, "<tool_call|>"), known=True),
    Way(("<|tool_call>", "call:", NAME, "(", Hole.KEYWORDS, ")", "<tool_call|>")),
)
FUNCTION_GEMMA = (
    Way(
        ("<start_function_call>", "call:", NAME, Hole.NOTED, "<end_function_call>"),
        quote="<escape>",
    ),
    Way(
        ("<start_function_call>", NAME, Hole.NOTED, "<end_function_call>"),
        known=True,
        quote="<escape>",
    ),
)

# Llama 3 and 4: JSON, Python, or both behind a mark.
LLAMA = (
    Way((Hole.CALL,), between="; ", known=True, keys=("name", "parameters")),
    Way((Hole.CALL,), opening="<|python_tag|>", between="; ", keys=("name", "parameters")),
    Way(("<function=", NAME, ">", Hole.OBJECT, "</function>"), known=True),
    Way(("<|python_tag|>", NAME, "(", Hole.KEYWORDS, ")"), known=True),
    Way(
        (NAME, "(", Hole.KEYWORDS, ")"),
        opening="[",
        between=", ",
        closing="]",
        known=True,
        first=True,
    ),
    FENCED,
    BARE_LIST,
)
