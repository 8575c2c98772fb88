"""The commands of the chat: a table of small functions on a Talk."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import click

from localspec import ranges
from localspec.chats import archive
from localspec.chats.transcript import MODES
from localspec.cli import clipboard, footer, material, presets
from localspec.cli.answer import echoed
from localspec.cli.columns import cut, hung
from localspec.cli.opening import PROMPT
from localspec.cli.talk import Talk, missing
from localspec.cli.theme import NAMES, theme
from localspec.cli.thinking import parted
from localspec.errors import LocalSpecError, RequestError

SETTINGS = {**ranges.SAMPLING, "max_tokens": ranges.MAX_TOKENS}
"""What /set knows: fields of the request that are numbers."""
_WHOLE = {"seed", "top_k", "penalty_last_n", "max_tokens"}
_LIKE_A_COMMAND = 0.7
_NONE = "-"
_LISTED = 15


class Command(NamedTuple):
    """What runs with the words behind it, its line of /help, and what Tab offers."""

    run: Callable[[Talk, str], None]
    summary: str
    words: Callable[[Talk], list[str]]


def named(line: str) -> tuple[Command | None, str]:
    """The command of a line, None for a question, and the words behind it.

    Only known commands are commands: /etc is a path. What is nearly one is refused, because a slip
    should cost a sentence and not an answer. Raises RequestError.
    """
    line = line.strip()
    word, _, argument = _ELSEWHERE.get(line, line).partition(" ")
    name = word.removeprefix("/")
    if word in COMMANDS:
        return COMMANDS[word], argument.strip()
    if re.fullmatch(r"/[a-z]+", word):
        near = difflib.get_close_matches(name, [key[1:] for key in COMMANDS], 1, _LIKE_A_COMMAND)
        if near:
            raise RequestError(
                f"There is no {word}.", fix=f"Did you mean /{near[0]}? /help lists all."
            )
    return None, ""


_ELSEWHERE = {"/quit": "/bye", "/exit": "/bye"}
"""Lines that leave other chats."""

_KEYS = (
    'Alt-Enter starts a new line; """ on a line of its own opens and closes a longer text.',
    "What is typed during an answer stands below it; Enter lets it be asked next.",
    "Ctrl-C stops an answer, Ctrl-D leaves; what was said is kept.",
)


def _help(talk: Talk, _: str) -> None:
    label, width = max(map(len, COMMANDS)), talk.console.width
    for name, command in COMMANDS.items():
        talk.show(hung(f"{name:<{label}}  ", command.summary, width))
    for line in _KEYS:
        talk.show(hung("", line, width))


def _model(talk: Talk, name: str) -> None:
    talk.await_opened()
    known = talk.models()
    before = talk.conversation.model
    if not name:
        for each in known:
            talk.show(f"{'*' if each == (before or known[0]) else ' '} {each}")
        return
    if name not in known:
        near = difflib.get_close_matches(name, known, 3, 0.4) or known
        raise RequestError(
            f'There is no model "{name}" here.', fix=f"There are: {', '.join(near)}."
        )
    talk.conversation.model = name
    talk.say(f"model: {name}")
    try:
        talk.switch()
    except LocalSpecError:
        talk.conversation.model = before
        raise


def _system(talk: Talk, text: str) -> None:
    if text:
        talk.conversation.system = "" if text == _NONE else presets.expanded(text)
    talk.say(f"system: {talk.conversation.system or '(none)'}")


def _set(talk: Talk, words: str) -> None:
    params = talk.conversation.params
    name, _, value = words.replace("=", " ").partition(" ")
    if not name:
        for each, allowed in SETTINGS.items():
            value = f"{params.get(each, '(as configured)')}  from {allowed}"
            talk.show(hung(f"{each:<18}  ", value, talk.console.width))
        return
    if name not in SETTINGS:
        near = difflib.get_close_matches(name, SETTINGS, 1)
        fix = f"Did you mean {near[0]}?" if near else f"There are: {', '.join(SETTINGS)}."
        raise RequestError(f"There is no setting {name}.", fix=fix)
    if value.strip() == _NONE:
        params.pop(name, None)
    elif value.strip():
        params[name] = _number(name, value.strip())
    talk.say(f"{name}: {params.get(name, '(as configured)')}")


def _number(name: str, text: str) -> float:
    allowed = SETTINGS[name]
    try:
        value = int(text) if name in _WHOLE else float(text)
    except ValueError:
        value = float("nan")
    if value not in allowed:
        raise RequestError(f"{name} = {text} is out of range.", fix=f"Choose from {allowed}.")
    return value


def _file(talk: Talk, name: str) -> None:
    if not name:
        raise RequestError("Which file?", fix="/file PATH")
    path = Path(name).expanduser()
    talk.attached.append(material.fenced(path.name, material.read(path)))
    talk.say(f"attached to the next question: {path.name}")


def _edit(talk: Talk, _: str) -> None:
    before = talk.conversation.last("user")
    if not before:
        raise missing("question to edit")
    try:
        with echoed():
            edited = click.edit(before, require_save=True, extension=".md")
    except click.ClickException as error:
        raise RequestError(error.message, fix="Set EDITOR.") from error
    if edited is None or not edited.strip():
        talk.say("not changed")
        return
    turns, question = [*talk.conversation.turns], edited.rstrip("\n")
    _take_back_turn(talk)
    talk.show(PROMPT + question)
    talk.ask(question, turns)


def _regen(talk: Talk, _: str) -> None:
    turns = [*talk.conversation.turns]
    talk.conversation.take_back("assistant")
    if not talk.conversation.turns:
        raise missing("question to answer again")
    talk.answer(turns)


def _undo(talk: Talk, _: str) -> None:
    question = _take_back_turn(talk)
    talk.next_line = question or ""
    talk.keep()
    talk.say("taken back, into your line" if question else "nothing to take back")


def _take_back_turn(talk: Talk) -> str | None:
    talk.conversation.take_back("assistant")
    return talk.conversation.take_back("user")


def _trim(talk: Talk, count: str) -> None:
    if count and not count.isdecimal():
        raise RequestError(f'"{count}" is no number of questions.', fix="/trim or /trim 3")
    left_out = talk.conversation.trim(int(count)) if count else talk.conversation.make_room(0.5)
    talk.keep()
    said = f"the oldest {left_out} turns are not sent any more; they stay in the kept chat"
    talk.say(said if left_out else "there is nothing to leave out: the last question stays")


def _clear(talk: Talk, _: str) -> None:
    kept = talk.conversation.name if talk.keeping else ""
    talk.conversation.forget()
    talk.ended, talk.thoughts = None, ""
    talk.say(f"cleared; /load {kept} brings it back" if kept else "cleared")


def _copy(talk: Talk, number: str) -> None:
    text = parted(_answered(talk))[1]
    if number:
        from localspec.cli import markdown  # noqa: PLC0415  slow to import

        code = markdown.fences(text)
        if not number.isdecimal() or not 0 < int(number) <= len(code):
            raise RequestError(
                f"The last answer has no block of code {number}.",
                fix=f"/copy 1 to /copy {len(code)}" if code else "/copy copies the whole answer.",
            )
        text = code[int(number) - 1]
    ways = clipboard.copy(text, talk.console.file)  # type: ignore[arg-type]
    if not ways:
        raise LocalSpecError(
            "There is no clipboard to be reached from here.", fix="/raw shows it to be marked."
        )
    talk.say(f"copied: {len(text)} characters, by {' and '.join(ways)}")


def _raw(talk: Talk, _: str) -> None:
    talk.show(_answered(talk))


def _answered(talk: Talk) -> str:
    text = talk.conversation.last("assistant")
    if not text:
        raise missing("answer yet")
    return text


def _think(talk: Talk, word: str) -> None:
    if word and word not in {"show", "hide"}:
        raise RequestError(f'"{word}" is no way to show thinking.', fix="/think show|hide")
    before = talk.show_thinking
    talk.show_thinking = word != "hide" if word else not before
    talk.say(f"thinking: {'shown' if talk.show_thinking else 'counted only'}")
    if talk.thoughts and talk.show_thinking and not before:
        talk.say(talk.thoughts)


def _theme(talk: Talk, name: str) -> None:
    if name not in NAMES:
        raise RequestError(f'There is no theme "{name}".', fix=f"/theme {'|'.join(NAMES)}")
    talk.look = theme(name)
    talk.say(f"theme: {name}")


def _save(talk: Talk, name: str) -> None:
    talk.say(f"saved: {archive.rename(talk.conversation, name)}")


def _load(talk: Talk, name: str) -> None:
    if not name:
        _chats(talk, "")
        return
    talk.resume(archive.load(name))


def _chats(talk: Talk, words: str) -> None:
    found = [kept for kept, _ in archive.search(words)] if words else list(archive.listed())
    for kept in found[:_LISTED]:
        talk.show(cut(f"{kept.name:22}  {kept.title}", talk.console.width))
    if len(found) > _LISTED:
        talk.say(f"and {len(found) - _LISTED} more: localspec chats list")
    talk.say("/load NAME goes on with one" if found else "no chats are kept yet")


def _stats(talk: Talk, _: str) -> None:
    if talk.ended:
        talk.show(footer.table(talk.ended, talk.console.width))
    else:
        talk.say("no finished answer yet")


def _draft(talk: Talk, words: str) -> None:
    conversation = talk.conversation
    for word in words.split():
        if word == "show":
            conversation.show_origins = not conversation.show_origins
        elif word in MODES:
            conversation.draft = word
        else:
            raise RequestError(f'"{word}" is no way to draft.', fix="/draft on|off|auto|show")
    shown = "shown, instead of Markdown" if conversation.show_origins else "not shown"
    talk.say(f"draft: {conversation.draft}; origins of tokens {shown}")


def _bye(talk: Talk, _: str) -> None:
    talk.over = True


def _nothing(_: Talk) -> list[str]:
    return []


def _preset_words(_: Talk) -> list[str]:
    return [presets.MARK + name for name in presets.names()]


COMMANDS: dict[str, Command] = {
    "/help": Command(_help, "Show this list.", _nothing),
    "/model": Command(_model, "Talk to another model, or list them.", Talk.models),
    "/system": Command(_system, "Set the system prompt, or @PRESET; - removes it.", _preset_words),
    "/set": Command(
        _set, "Set temperature, seed, max_tokens ...; - resets.", lambda _: [*SETTINGS]
    ),
    "/file": Command(_file, "Add a text file to the next question.", _nothing),
    "/edit": Command(_edit, "Change the last question in $EDITOR and ask it.", _nothing),
    "/regen": Command(_regen, "Answer the last question again.", _nothing),
    "/undo": Command(_undo, "Take the last question back into the line.", _nothing),
    "/trim": Command(_trim, "Leave out the oldest turns: N questions, or half.", _nothing),
    "/clear": Command(_clear, "Begin a new conversation, keep the settings.", _nothing),
    "/copy": Command(_copy, "Copy the last answer, or its Nth block of code.", _nothing),
    "/raw": Command(_raw, "Show the last answer as it was written.", _nothing),
    "/think": Command(
        _think, "Show what a model thinks, or only count it.", lambda _: ["show", "hide"]
    ),
    "/theme": Command(_theme, "Colours: auto, dark, light or none.", lambda _: [*NAMES]),
    "/save": Command(_save, "Give the conversation a name.", _nothing),
    "/load": Command(_load, "Go on with a kept conversation.", lambda _: archive.names()),
    "/chats": Command(_chats, "List kept conversations, or those with WORDS.", _nothing),
    "/stats": Command(_stats, "Show all figures of the last answer.", _nothing),
    "/draft": Command(
        _draft, "Speculate on, off or auto; show colours tokens.", lambda _: [*MODES, "show"]
    ),
    "/bye": Command(_bye, "Leave.", _nothing),
}
