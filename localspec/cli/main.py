"""The command `localspec`: its table of commands and the one place that makes errors exit codes.

Commands are imported when they are called, so that `localspec --help` and completion stay quick.
"""

from __future__ import annotations

import gc
import importlib
import os
import signal
import sys
from typing import TYPE_CHECKING, Any

import click

from localspec import streams
from localspec.cli.groups import Group
from localspec.errors import LocalSpecError, of_system

if TYPE_CHECKING:
    from types import FrameType

    from click.shell_completion import CompletionItem

COMMANDS: dict[str, tuple[str, str]] = {
    "chat": ("localspec.cli.chat:chat", "Talk to the model; starts the daemon when needed."),
    "run": (
        "localspec.cli.run:run",
        "Talk to MODEL, which is pulled first if it is not here.",
    ),
    "chats": (
        "localspec.cli.chats:chats",
        "List, search, show, export and remove kept conversations.",
    ),
    "presets": (
        "localspec.cli.prompts:presets",
        "List, show, save and remove system prompts with names.",
    ),
    "corpus": (
        "localspec.cli.corpus:corpus",
        "Draft answers from your own files: add, list and drop folders.",
    ),
    "cache": (
        "localspec.cli.cache:cache",
        "Show and clear what is kept of prompts that were read.",
    ),
    "web": (
        "localspec.cli.web:web",
        "Open the page: chat, conversations, and what the machine does.",
    ),
    "models": ("localspec.cli.models:models", "List, pull, import and inspect models."),
    "list": ("localspec.cli.models:list_models", "Show every model here and in the catalog."),
    "pull": (
        "localspec.cli.models:pull",
        "Fetch MODEL and its draft; without a name, the default pair.",
    ),
    "ps": (
        "localspec.cli.run:ps",
        "Show which models are loaded, in which memory, and how busy they are.",
    ),
    "start": ("localspec.cli.daemon:start", "Start the daemon in the background."),
    "stop": ("localspec.cli.daemon:stop", "Let running answers finish, then end the daemon."),
    "restart": ("localspec.cli.daemon:restart", "Stop the daemon and start it again."),
    "status": ("localspec.cli.status:status", "Show what is loaded, where, and how it does."),
    "doctor": (
        "localspec.cli.doctor:doctor",
        "Say what is wrong on this machine, and what mends it.",
    ),
    "build": (
        "localspec.cli.build:build",
        "Compile llama.cpp for this machine, prove it, and use it from then on.",
    ),
    "logs": ("localspec.cli.daemon:logs", "Show the daemon's log."),
    "reload": ("localspec.cli.daemon:reload", "Read the configuration and the models again."),
    "serve": ("localspec.cli.daemon:serve", "Run the daemon in the foreground."),
    "socket": ("localspec.cli.daemon:socket", "Print where the daemon listens."),
    "config": ("localspec.cli.settings:config", "Show, check and change the configuration."),
    "service": ("localspec.cli.service:service", "Let systemd or launchd keep the daemon running."),
    "connect": (
        "localspec.cli.connect:connect",
        "Print or write what an editor or an agent needs to use the daemon.",
    ),
    "openapi": (
        "localspec.cli.openapi:openapi",
        "Print the API as an OpenAPI document.",
    ),
    "lsp": (
        "localspec.cli.lsp:lsp",
        "Complete code for editors, as a language server on standard input and output.",
    ),
    "worker-host": (
        "localspec.cli.worker_host:worker_host",
        "Lend this machine's devices to a daemon elsewhere.",
    ),
    "bench": (
        "localspec.cli.bench:bench",
        "Measure speculation against plain decoding and other servers.",
    ),
    "verify": (
        "localspec.cli.verify:verify",
        "Replay prompts with drafts and without, and compare the texts.",
    ),
    "tune": (
        "localspec.cli.tune:tune",
        "Show what was learned about this machine, and what to change.",
    ),
    "completion": (
        "localspec.cli.completion:completion",
        "Print the completion script of a shell.",
    ),
    "help": ("localspec.cli.run:help_", "Show the help of a command, or of all."),
}
"""Command -> (module:attribute, the first line of its help)."""

EPILOG = """\b
Exit codes:
    0  done                      70  llama.cpp failed
    1  failed                    75  loading or busy, try later
    2  wrong usage or request    77  not allowed
   65  not a usable model        78  wrong configuration
   69  daemon or source away    130  interrupted

\b
Environment:
  LOCALSPEC_HOST          unix:///path or 127.0.0.1:port of the daemon
  LOCALSPEC_API_KEY_FILE  file with the token, for TCP
  LOCALSPEC_CONFIG        configuration file
  LOCALSPEC_MODELS        models directory
  LOCALSPEC_NOHISTORY     if set, the chat writes no input history
  NO_COLOR                if set, no colours
"""

INTERRUPTED = 130
_COLLECTED = 100000
"""New objects between two garbage collections. Objects that imports make stay alive; searching
them took a tenth of the time until a chat's first prompt."""


class Edge(Group):
    """The root group: lazy commands, and every error of `errors.py` mapped to its exit code."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002  click's signature
        """Names in the order of the table, which is the order of a newcomer's needs."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002  click's signature
        """The command itself, imported now."""
        if cmd_name not in COMMANDS:
            return None
        module, _, attribute = COMMANDS[cmd_name][0].partition(":")
        command: click.Command = getattr(importlib.import_module(module), attribute)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002  click's signature
        """The table, without importing what it names."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, summary) for name, (_, summary) in COMMANDS.items()])

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Complete command names from the table: Tab after `localspec` imports no command."""
        from click.shell_completion import CompletionItem  # noqa: PLC0415  only Tab needs it

        options = click.Command.shell_complete(self, ctx, incomplete)
        found = {name: text for name, (_, text) in COMMANDS.items() if name.startswith(incomplete)}
        return [*options, *(CompletionItem(name, help=text) for name, text in found.items())]

    def make_context(self, *args: Any, **kwargs: Any) -> click.Context:
        """Read the arguments; Ctrl-C ends the command as in `invoke`."""
        try:
            return super().make_context(*args, **kwargs)
        except KeyboardInterrupt:
            raise _interrupted() from None

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; Ctrl-C ends it, also while an error is printed."""
        try:
            return self._invoked(ctx)
        except (KeyboardInterrupt, click.Abort):
            raise _interrupted() from None

    def _invoked(self, ctx: click.Context) -> Any:
        """Run the command; this is the one place that turns errors into exit codes."""
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            raise  # the reader of our output has left; click knows what to do
        except (LocalSpecError, OSError) as error:
            if os.environ.get("LOCALSPEC_DEBUG"):
                raise
            known = of_system(error) if isinstance(error, OSError) else error
            complain(known)
            ctx.exit(known.exit_code)
        except click.UsageError as error:
            raise click.UsageError(_folded(error.format_message()), error.ctx) from error
        except (click.Abort, click.ClickException, click.exceptions.Exit):
            raise
        except Exception as error:
            if os.environ.get("LOCALSPEC_DEBUG"):
                raise
            complain(LocalSpecError(f"A bug: {error!r}.", fix="LOCALSPEC_DEBUG=1 shows where."))
            ctx.exit(LocalSpecError.exit_code)


def _interrupted() -> click.exceptions.Exit:
    """End the line with the terminal's ^C; click itself would print "Aborted!" and exit with 1."""
    click.echo(err=True)
    return click.exceptions.Exit(INTERRUPTED)


def _folded(message: str) -> str:
    """The message, folded as it is printed: click puts "Error: " before it."""
    from localspec.cli.columns import columns, hung  # noqa: PLC0415  only when things go wrong

    begun = "Error: "
    return hung("", begun + message, columns(sys.stderr)).removeprefix(begun)


def complain(error: LocalSpecError) -> None:
    """Print an error to stderr: the event, its cause and its fix."""
    from localspec.cli.columns import advice, columns, hung  # noqa: PLC0415  only when things go wrong
    from localspec.cli.render import sentences  # noqa: PLC0415  the same

    first, *others = sentences(error)
    width = columns(sys.stderr)
    for line in [hung("", first, width), *(advice(line, width) for line in others)]:
        click.echo(line, err=True)


def _version(ctx: click.Context, _param: click.Parameter, wanted: bool) -> None:  # noqa: FBT001  click's signature
    if not wanted or ctx.resilient_parsing:
        return
    from importlib import metadata  # noqa: PLC0415  slow to import, rarely asked for

    try:
        click.echo(f"localspec {metadata.version('localspec')}")
    except metadata.PackageNotFoundError:
        click.echo("localspec (run from its sources, not installed)")
    ctx.exit()


@click.group(
    "localspec", cls=Edge, epilog=EPILOG, context_settings={"help_option_names": ["-h", "--help"]}
)
@click.option(
    "--version", is_flag=True, is_eager=True, expose_value=False, callback=_version,
    help="Show the version and leave.",
)  # fmt: skip
def cli() -> None:
    """Private inference on this machine, never slower with speculation than without.

    \b
    localspec chat                       talk
    localspec run qwen3-8b               talk to another model, pulled at first use
    git diff | localspec chat "review"   ask about what a pipe brings
    localspec status                     see what speculation does for you
    """  # noqa: D301  \b is click's mark for a paragraph that must not be wrapped


def _interrupt(number: int, _frame: FrameType | None) -> None:
    """Handle the first SIGTERM or SIGHUP as Ctrl-C, so that the command cleans up."""
    hung_up = number == signal.SIGHUP  # a kernel sends it twice: to a session, and to its job
    signal.signal(number, signal.SIG_IGN if hung_up else signal.SIG_DFL)
    if hung_up:
        streams.hung_up()
    raise KeyboardInterrupt


def main() -> None:
    """Run the command line of this process; SIGTERM and SIGHUP interrupt it like Ctrl-C.

    A second SIGTERM, or a signal after all is done, ends the process at once; a second SIGHUP is
    ignored.
    """
    asked = (signal.SIGTERM, signal.SIGHUP)
    heard = [number for number in asked if signal.getsignal(number) is signal.SIG_DFL]
    try:
        for number in heard:
            signal.signal(number, _interrupt)
        streams.ensure()
        gc.set_threshold(_COLLECTED)
        cli(prog_name="localspec")
    except KeyboardInterrupt:  # raised where click does not catch it
        sys.exit(INTERRUPTED)
    finally:
        if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            heard.append(signal.SIGINT)
        for number in heard:
            if signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, signal.SIG_DFL)


if __name__ == "__main__":
    main()
