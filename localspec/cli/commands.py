"""The commands of the chat: a table of small functions on a Talk."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple

import click

from localspec import paths, ranges
from localspec.chats import archive
from localspec.chats.transcript import MODES
from localspec.cli import clipboard, footer, material, pictures, presets
from localspec.cli.answer import echoed
from localspec.cli.columns import cut, hung
from localspec.cli.opening import PROMPT
from localspec.cli.talk import Attached, Talk, missing, turns
from localspec.cli.theme import NAMES, theme
from localspec.cli.thinking import parted
from localspec.errors import LocalSpecError, RequestError

SETTINGS = {**ranges.SAMPLING, "max_tokens": ranges.MAX_TOKENS}
"""Keys of /set: fields of the request that are numbers."""
_WHOLE = {"seed", "top_k", "penalty_last_n", "max_tokens"}
_LIKE_A_COMMAND = 0.7
_NONE = "-"
_LISTED = 15


class Command(NamedTuple):
    """A command of the chat: its function, its line of /help, and its completions.

    A command that is `alone` takes no words.
    """

    run: Callable[[Talk, str], None]
    summary: str
    words: Callable[[Talk], list[str]]
    alone: bool = False


def named(line: str) -> tuple[Command | None, str]:
    """Split a line into its command (None for a question) and the words behind it.

    A line that begins like a command is never a question, so that a mistyped command gets an error
    message and not an answer. A line that begins with a path (/usr/bin, or /etc if it exists) or
    with a program's comment (//, /*) is a question. Raises RequestError.
    """
    word, *rest = line.strip().split(maxsplit=1) or [""]
    name = word.lower()
    name = _ELSEWHERE.get(name, name)
    if found := COMMANDS.get(name):
        if found.alone and rest:
            raise RequestError(f"{word} takes no words.", fix=f"Enter {word} alone.")
        return found, rest[0].strip() if rest else ""
    if _COMMAND.fullmatch(word) and not (len(word) > 1 and Path(word).exists()):
        near = difflib.get_close_matches(name, COMMANDS, 1, _LIKE_A_COMMAND)
        meant = f"Did you mean {near[0]}? " if near else ""
        raise RequestError(
            f"There is no {word}.",
            fix=f"{meant}/help lists all commands; a question begins with another word.",
        )
    return None, ""


_COMMAND = re.compile(r"/|/[^\W_][\w-]*[?!.,:;]?|/[?!]+")
"""The form of a command. With another slash a word is a path, with a dot inside a file name."""
_ELSEWHERE = {"/quit": "/bye", "/exit": "/bye", "/?": "/help"}
"""Commands of other chat programs, and ours."""

_KEYS = (
    'Alt-Enter starts a new line; """ on a line of its own opens and closes a longer text.',
    "What is typed during an answer stands below it; Enter lets it be asked next.",
    "Ctrl-C stops an answer, Ctrl-D leaves, Ctrl-Z suspends; what was said is kept.",
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
    before = talk.conversation.system
    if text == _NONE:
        talk.conversation.system = ""
        removed = "The system prompt is removed" if before else "There is no system prompt"
        talk.say(f"{removed}; /system TEXT sets one.")
        return
    if text:
        talk.conversation.system = presets.expanded(text)
    elif not before:
        talk.say("There is no system prompt; /system TEXT sets one.")
        return
    talk.say(f"system: {talk.conversation.system}")


def _set(talk: Talk, words: str) -> None:
    params = talk.conversation.params
    name, _, value = words.replace("=", " ").partition(" ")
    if not name:
        for each, allowed in SETTINGS.items():
            value = f"{params.get(each, '(as configured)')}  from {allowed}"
            talk.show(hung(f"{each:<18}  ", value, talk.console.width))
        return
    if name == _NONE:
        gone = ", ".join(key for key in SETTINGS if params.pop(key, None) is not None)
        kept = f"as configured again: {gone}" if gone else "everything is as configured"
        talk.say(f"{kept}; /set NAME VALUE changes one, /set lists all")
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
    _attach(talk, "/file", name, lambda path: material.fenced(path.name, material.read(path)))


def _image(talk: Talk, name: str) -> None:
    _attach(talk, "/image", name, partial(pictures.attach, talk.conversation))


def _attach(talk: Talk, command: str, name: str, read: Callable[[Path], str]) -> None:
    """Attach what `read` returns for the file; "-" takes all files off again."""
    if name == _NONE:
        talk.say(talk.detach() or f"No file is attached; {command} PATH attaches one.")
        return
    if name:
        path = paths.expanded(name)
        talk.attached.append(Attached(path.name, read(path)))
    elif not talk.attached:
        raise RequestError("No file is attached.", fix=f"{command} PATH attaches one.")
    names = ", ".join(file.name for file in talk.attached)
    talk.say(f"attached to the next question: {names} ({command} - takes them off)")


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
    if count and not (count.isascii() and count.isdecimal() and int(count[:9])):
        raise RequestError(f'/trim takes how many turns, not "{count}".', fix="/trim or /trim 3")
    room = talk.conversation.make_room
    left_out = talk.conversation.trim(int(count[:9])) if count else room(0.5)
    talk.keep()
    verb = "is" if left_out == 1 else "are"
    said = f"the oldest {turns(left_out)} {verb} not sent any more; the kept chat still has all"
    talk.say(said if left_out else "there is nothing to leave out: the last question stays")


def _clear(talk: Talk, _: str) -> None:
    kept = talk.conversation.name if talk.keeping else ""
    talk.conversation.forget()
    talk.ended, talk.thoughts = None, ""
    talk.say(f"cleared; /load {kept} brings it back" if kept else "cleared")
    if left := talk.detach():
        talk.say(left)


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
    word = {"on": "show", "off": "hide"}.get(word, word)
    if word and word not in {"show", "hide"}:
        raise RequestError(f'/think takes "show" or "hide", not "{word}".', fix="/think hide")
    before = talk.show_thinking
    talk.show_thinking = word != "hide" if word else not before
    talk.say(f"thinking: {'shown' if talk.show_thinking else 'counted only'}")
    if talk.thoughts and talk.show_thinking and not before:
        talk.say(talk.thoughts)


def _theme(talk: Talk, name: str) -> None:
    if name not in NAMES:
        what = f'There is no theme "{name}".' if name else "Which theme?"
        raise RequestError(what, fix=f"There are: {', '.join(NAMES)}.")
    talk.look = theme(name)
    talk.say(f"theme: {name}")


def _save(talk: Talk, name: str) -> None:
    talk.say(f"saved: {archive.rename(talk.conversation, name)}")


def _load(talk: Talk, name: str) -> None:
    if not name:
        _chats(talk, "")
        return
    talk.resume(archive.load(name))
    if left := talk.detach():
        talk.say(left)


def _chats(talk: Talk, words: str) -> None:
    found = [kept for kept, _ in archive.search(words)] if words else list(archive.listed())
    for kept in found[:_LISTED]:
        talk.show(cut(f"{kept.name:22}  {kept.title}", talk.console.width))
    if len(found) > _LISTED:
        talk.say(f"and {len(found) - _LISTED} more: localspec chats list")
    if found:
        talk.say("/load NAME goes on with one")
    elif words and archive.names():
        talk.say(f'No kept chat has "{words}" in it; /chats lists all.')
    else:
        talk.say("No chat is kept yet: what you ask is kept by itself, /save NAME names it.")


def _stats(talk: Talk, _: str) -> None:
    if talk.ended:
        talk.measure(talk.ended)
        talk.show(footer.table(talk.ended, talk.console.width, talk.plain_ms))
    else:
        talk.say("no finished answer yet")


def _verbose(talk: Talk, word: str) -> None:
    if word and word not in {"on", "off"}:
        raise RequestError(f'/verbose takes "on" or "off", not "{word}".', fix="/verbose on")
    talk.verbose = word != "off" if word else not talk.verbose
    talk.say(f"speed after each answer: {'shown' if talk.verbose else 'not shown'}")


def _draft(talk: Talk, words: str) -> None:
    conversation = talk.conversation
    for word in words.split():
        if word == "show":
            conversation.show_origins = not conversation.show_origins
        elif word in MODES:
            conversation.draft = word
        else:
            raise RequestError(
                f'/draft takes on, off, auto or show, not "{word}".',
                fix="/draft auto speculates when it pays.",
            )
    shown = "shown, instead of Markdown" if conversation.show_origins else "not shown"
    talk.say(f"speculation: {conversation.draft}; who drafted a token is {shown}")


def _bye(talk: Talk, _: str) -> None:
    talk.over = True


def _nothing(_: Talk) -> list[str]:
    return []


def _preset_words(_: Talk) -> list[str]:
    return [presets.MARK + name for name in presets.names()]


COMMANDS: dict[str, Command] = {
    "/help": Command(_help, "Show this list.", _nothing, alone=True),
    "/model": Command(_model, "Talk to another model, or list them.", Talk.models),
    "/system": Command(_system, "Set the system prompt, or @PRESET; - removes it.", _preset_words),
    "/set": Command(
        _set, "Set temperature, seed, max_tokens ...; - resets.", lambda _: [*SETTINGS]
    ),
    "/file": Command(_file, "Add a text file to the next question; - takes it off.", _nothing),
    "/image": Command(_image, "Add a picture to the next question; - takes it off.", _nothing),
    "/edit": Command(
        _edit, "Change the last question in $EDITOR and ask it.", _nothing, alone=True
    ),
    "/regen": Command(_regen, "Answer the last question again.", _nothing, alone=True),
    "/undo": Command(_undo, "Take the last question back into the line.", _nothing, alone=True),
    "/trim": Command(_trim, "Leave out the oldest turns: N questions, or half.", _nothing),
    "/clear": Command(_clear, "Begin a new conversation, keep the settings.", _nothing, alone=True),
    "/copy": Command(_copy, "Copy the last answer, or its Nth block of code.", _nothing),
    "/raw": Command(_raw, "Show the last answer as it was written.", _nothing, alone=True),
    "/think": Command(
        _think, "Show what a model thinks, or only count it.", lambda _: ["show", "hide"]
    ),
    "/theme": Command(_theme, "Colours: auto, dark, light or none.", lambda _: [*NAMES]),
    "/save": Command(_save, "Give the conversation a name.", _nothing),
    "/load": Command(_load, "Go on with a kept conversation.", lambda _: archive.names()),
    "/chats": Command(_chats, "List kept conversations, or those with WORDS.", _nothing),
    "/stats": Command(_stats, "Show all figures of the last answer.", _nothing, alone=True),
    "/verbose": Command(
        _verbose, "Show the speed after each answer, or not.", lambda _: ["on", "off"]
    ),
    "/draft": Command(
        _draft, "Speculate on, off or auto; show colours tokens.", lambda _: [*MODES, "show"]
    ),
    "/bye": Command(_bye, "Leave.", _nothing, alone=True),
}
