"""`localspec models`: list, show, format, plan, pull, import, rm, check, quantize, head, prune."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import click
import msgspec

from localspec.catalog import (
    describe,
    entries,
    header,
    pairing,
    prepare,
    projectors,
    shelf,
    soundness,
    templates,
)
from localspec.catalog.header import Header
from localspec.catalog.memory import show_bytes
from localspec.catalog.quantize import KINDS
from localspec.catalog.registry import Model, Registry
from localspec.cli import chosen, fetching, obtain
from localspec.cli.checksums import verify_files
from localspec.cli.columns import columns, folded, hung
from localspec.cli.confirm import YES, confirm
from localspec.cli.convert_head import convert_head
from localspec.cli.distill import distill
from localspec.cli.formats import given, show_format
from localspec.cli.groups import Group
from localspec.cli.names import complete_models
from localspec.cli.plan import plan, together
from localspec.cli.progress import shown
from localspec.cli.prune import prune
from localspec.cli.render import emit, printable
from localspec.errors import BadGGUF, BadPair, RequestError, escaped
from localspec.wire.values import DraftHead

_SHOWN_DIGITS = 16
"""The digits of a digest that are printed; --json has all."""
_JSON = click.option("--json", "as_json", is_flag=True, help="JSON on stdout, for machines.")


@click.group(cls=Group)
def models() -> None:
    """List, pull, import and inspect models.

    Example: localspec models list
    """


models.add_command(plan)
models.add_command(verify_files)
models.add_command(show_format)
models.add_command(fetching.search)
models.add_command(prune)
models.add_command(convert_head)
models.add_command(distill)


@models.command("list")
@_JSON
def list_models(*, as_json: bool = False) -> None:
    """Show every model here and in the catalog.

    Example: localspec models list
    """
    registry = Registry(chosen.models_directory())
    rows, skipped = registry.models(), registry.skipped()
    broken = soundness.broken([model.path for model in rows if model.path])
    lora = {model.name: chosen.adapters(registry, model) for model in rows}
    heads = {model.name: _head(registry, model.path) for model in rows if model.path}
    used = {Path(head.path).name for head, _ in heads.values() if head and head.path}
    used |= {Path(model.projector[0]).name for model in rows}
    skipped = [file for file in skipped if file.file not in used]
    if as_json:
        found = [
            _row(model)
            | {"broken": _why(model, broken) or None, "head": _head_row(heads.get(model.name))}
            | {"adapters": lora[model.name]}
            for model in rows
        ]
        emit({"models": found, "skipped": skipped})
        return
    width = max(len(model.name) for model in rows)
    click.echo(f"{'NAME':{width}}  {'SIZE':>9}  {'STATE':9}  DRAFT")
    for model in rows:
        size = show_bytes(model.size_bytes) if model.installed else "-"
        state = ("linked" if model.linked else "here") if model.installed else "catalog"
        draft = model.draft or ("(is a draft)" if model.role == "draft" else "-")
        head, why = heads.get(model.name, (None, ""))
        if head or why:
            draft = "; ".join(filter(None, (model.draft, head.sentence if head else why)))
        draft += projectors.told(*model.projector)
        if reason := _why(model, broken):
            state, draft = "broken:", reason
        row = escaped(f"{model.name:{width}}  {size:>9}  {state:9}  ")
        first, *below = folded(row, escaped(draft), columns())
        click.echo(first)
        if below:  # a reason has to be read to its end
            click.echo(hung("  ", escaped(draft), columns()))
        for said in lora[model.name]:
            click.echo(hung("  ", escaped(said), columns()))
    click.echo(hung("", f"{len(entries.offers())} more: localspec models search", columns()))
    for file in skipped:
        skip = escaped(f"skipped {file.file}: {file.reason}")
        click.echo(hung("", skip, columns(sys.stderr)), err=True)


@models.command()
@click.argument("model", shell_complete=complete_models)
@click.option("--context", type=click.IntRange(1, 1 << 22), help="Tokens to plan memory for.")
@click.option("--template", is_flag=True, help="Print the chat template and nothing else.")
@_JSON
def show(model: str, context: int | None, *, template: bool, as_json: bool) -> None:
    """Print what the header of MODEL, a name or a file, says about it.

    Example: localspec models show qwen2.5-coder-1.5b-instruct --context 16384
    """
    configured = chosen.settings()
    if context:
        engine = msgspec.structs.replace(configured.engine, context=context)
        configured = msgspec.structs.replace(configured, engine=engine)
    settings = configured.engine
    path, draft_path = chosen.files(model)
    target, template_given = header.read(path), given(model)
    context = settings.context or target.context_length
    said = describe.describe(target, context, settings.target.kv_type)
    if template:
        click.echo(printable(template_given or said.chat_template or "").rstrip("\n"))
        return
    pair, warning = _loaded(target, draft_path)
    drafts = [describe.describe(found, context, settings.draft.kv_type) for found in pair[1:]]
    if as_json:
        memory = drafts[0].memory if drafts else None
        emit({**msgspec.to_builtins(said), "draft_memory": memory})
        return
    lines = [*_lines(said, *drafts), *together(pair, configured)]
    if template_given is not None:
        lines.append(("chat template", "yours, by [models.templates]"))
    lines += [("warning", warning)] if warning else []
    for label, value in lines:
        click.echo(hung(f"{label:16}", escaped(value), columns()))


@models.command()
@click.argument("model", required=False, shell_complete=complete_models)
@click.option("--keep-source", is_flag=True, help="Keep the file that a draft is made from.")
@click.option("--name", help="How a model of the Hub is called here; by default as its file is.")
@click.option(
    "--draft/--no-draft", "wants_draft", default=None, help="Also fetch the draft that suits it."
)
@_JSON
def pull(
    model: str | None,
    name: str | None,
    *,
    keep_source: bool,
    wants_draft: bool | None,
    as_json: bool,
) -> None:
    """Fetch MODEL and its draft; without a name, the default pair.

    MODEL is a name (qwen3-8b, qwen3:8b, gemma3), a repository of the Hugging Face Hub (OWNER/REPO,
    OWNER/REPO:Q4_K_M, OWNER/REPO:FILE, hf.co/...), of which the quantization is taken that fits
    this machine, the URL of a GGUF file, or such a file of yours (./model.gguf), which is copied.
    A head in the repository that drafts for the model (MTP, EAGLE-3) is taken along.

    Interrupt it whenever you like: the next call goes on where it stopped. A draft is requantized
    to INT4 here; the file it was made from is removed afterwards unless --keep-source is given.

    Example: localspec models pull
    """
    if model is not None and not model.strip():
        raise RequestError("MODEL is empty.", fix="localspec models list  # shows all")
    settings = chosen.settings()
    directory = chosen.models_directory()
    if model and (file := obtain.file_of(model)):
        obtain.copy_file(file, directory, name, wants_draft, as_json=as_json)
        return
    if model and (wanted := fetching.reference_of(model)):
        fetching.fetch(wanted, directory, name, wants_draft, as_json=as_json)
        return
    pulled = Registry(directory).find(model or settings.models.default).name
    entry = entries.load().get(pulled)
    with shown(as_json=as_json) as report:
        if entry is not None and entry.quantize is not None:
            prepare.ensure_entry(entry, directory, report, keep_source=keep_source)
        found = prepare.ensure_pair(pulled, directory, report, draft_required=True)
    if as_json:
        emit({"stage": "ready", **_paths(found.name, found.target_path, found.draft_path)})
        return
    click.echo(f"{found.name}: {found.target_path}")
    if found.draft_name:
        click.echo(f"{found.draft_name}: {found.draft_path}")


@models.command("import")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--name", help="How the model is called; by default as the file is.")
@click.option("--draft", metavar="MODEL", help="A model here that proposes for it.")
@click.option("--link", is_flag=True, help="Link to the file instead of copying it.")
@_JSON
def import_file(
    file: Path, name: str | None, draft: str | None, *, link: bool, as_json: bool
) -> None:
    """Make any GGUF FILE a model, once its header is found sound.

    Example: localspec models import ~/Downloads/My-Model.Q4_K_M.gguf --name my-model
    """
    with shown(as_json=as_json) as report:
        model = shelf.add(
            file, chosen.models_directory(), report, name=name, draft=draft, link=link
        )
    if as_json:
        emit({"stage": "ready", **_row(model)})
    else:
        click.echo(f"{model.name}: {model.path}")


@models.command()
@click.argument("model", shell_complete=complete_models)
@YES
@_JSON
def rm(model: str, *, yes: bool, as_json: bool) -> None:
    """Remove MODEL from this machine, when asked and agreed, and say what the disk got back.

    Example: localspec models rm smollm2-135m-instruct
    """
    directory = chosen.models_directory()
    registry = Registry(directory)
    found = registry.find(model)
    name = found.name
    if found.installed and not as_json:
        confirm(_question(found, registry), yes=yes)
    freed = shelf.remove(name, directory)
    if as_json:
        emit({"model": name, "freed_bytes": freed})
    else:
        click.echo(f"removed {name}: {show_bytes(freed)} came back")


@models.command()
@click.argument("target", shell_complete=complete_models)
@click.argument("draft", shell_complete=complete_models)
@_JSON
@click.pass_context
def check(context: click.Context, target: str, draft: str, *, as_json: bool) -> None:
    """Say whether DRAFT can propose for TARGET, names or files; exit code 65 if not.

    Example: localspec models check qwen2.5-coder-1.5b-instruct qwen2.5-coder-0.5b-instruct
    """
    ours, theirs = header.read(chosen.files(target)[0]), header.read(chosen.files(draft)[0])
    verdict = pairing.check(ours, theirs)
    if not as_json:
        verdict.demand()
        click.echo(hung("ok: ", _sentence(verdict), columns()))
        if doubt := pairing.doubt(ours, theirs):
            click.echo(hung("warning: ", doubt, columns(sys.stderr)), err=True)
        return
    emit(verdict)
    if not verdict.can_speculate:
        context.exit(65)


def _sentence(verdict: pairing.Pairing) -> str:
    """How two models can speculate together."""
    if verdict.by_text:
        return (
            f"they can speculate together, but not by rejection. {verdict.difference} So the draft "
            "reads the text in its own tokens and writes the target's, which costs agreement"
        )
    return f"they share {verdict.shared_tokens} tokens and can speculate together"


@models.command()
@click.argument("model", shell_complete=complete_models)
@click.option("--kind", type=click.Choice(list(KINDS)), default="q4_0", show_default=True)
@_JSON
def quantize(model: str, kind: str, *, as_json: bool) -> None:
    """Make a new model of MODEL in which every matrix is INT4, and measure both.

    Example: localspec models quantize qwen2.5-coder-1.5b-instruct
    """
    threads = chosen.settings().engine.target.threads
    with shown(as_json=as_json) as report:
        result = prepare.quantize_model(
            model, chosen.models_directory(), report, kind=kind, threads=threads
        )
    if as_json:
        emit({"stage": "ready", "model": result.path.stem, **msgspec.to_builtins(result)})
    else:
        click.echo(f"{result.path.stem}: {result}")


@models.command()
@click.argument("model", shell_complete=complete_models)
@click.option(
    "--kind",
    type=click.Choice(["feature", "eagle3"]),
    default="feature",
    show_default=True,
    help="A linear map, or a layer with attention (EAGLE-3) that torch teaches.",
)
@click.option(
    "--tokens",
    type=click.IntRange(10_000),
    help="Of all answers together.  [default: 300000, of eagle3 1000000]",
)
@click.option(
    "--questions",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Of eagle3: a text file with a question on each line, in place of LocalSpec's own.",
)
@click.option(
    "--work",
    type=click.Path(file_okay=False, path_type=Path),
    help="Of eagle3: a directory for what it learns from, in place of the cache.",
)
@click.pass_context
def head(  # noqa: PLR0913, PLR0917 - its options
    context: click.Context,
    model: str,
    kind: str,
    tokens: int | None,
    questions: Path | None,
    work: Path | None,
) -> None:
    """Teach MODEL a draft head, by texts of so many tokens that it writes itself.

    A head foretells a word from what the model has just computed, and has no prompt to read. It is
    kept in heads/ beside MODEL and used from the next load on. MODEL writes where a daemon would
    load it, on a GPU if there is one; stop yours first where both do not fit. The default model has
    a head already; for a small one on two cores it takes an hour.

    An EAGLE-3 head is right more often, three times out of five, and takes some milliseconds. It is
    taught by torch (pip install 'localspec[train]'), on a GPU if torch has one: minutes there once
    the texts are written, days on two cores. How long is said first; interrupted, the same command
    goes on. It stops when it no longer gets better on texts that it has not seen.

    Example: localspec models head --kind eagle3 qwen2.5-coder-1.5b-instruct
    """
    if kind == "feature" and (questions or work):
        raise click.UsageError("--questions and --work are options of --kind eagle3.")
    target = chosen.files(model)[0]
    suffix, module = ("", "train_head") if kind == "feature" else ("-eagle3", "eagle3")
    place = target.parent / "heads" / f"{target.stem}{suffix}.gguf"
    command = [sys.executable, "-P", "-m", f"localspec.worker.{module}", str(target), str(place)]
    asked = {"tokens": tokens, "questions": questions, "work": work}
    command += [f"--{name}={value}" for name, value in asked.items() if value is not None]
    done = subprocess.run(command, check=False)  # noqa: S603 - our own
    if done.returncode:
        context.exit(done.returncode)
    click.echo(f"{place} is used from the next load on: localspec reload")


def _question(model: Model, registry: Registry) -> str:
    """The question before a model is removed: what would be lost."""
    size = "the link, not its file" if model.linked else show_bytes(model.size_bytes)
    users = [name for name, draft in registry.drafts().items() if draft == model.name]
    drafting = f"; {', '.join(users)} will go without its draft" if users else ""
    default = "; it is the default model" if model.name == chosen.settings().models.default else ""
    return f"Remove {escaped(model.name)} ({size}{default}{drafting})?"


def _loaded(target: Header, draft: Path | None) -> tuple[list[Header], str]:
    """The headers of the files that a load would use, and the reason why the draft is left out."""
    try:
        return [target, *([pairing.check_draft(target, draft)] if draft else [])], ""
    except (BadGGUF, BadPair) as error:
        return [target], error.message


def _why(model: Model, broken: dict[Path, str]) -> str:
    """The reason why a model's file cannot be used; "" if it can, or is not here."""
    return broken.get(model.path, "") if model.path else ""


def _row(model: Model) -> dict[str, Any]:
    return {
        "name": model.name,
        "installed": model.installed,
        "path": str(model.path) if model.path else None,
        "size_bytes": model.size_bytes,
        "role": model.role,
        "draft": model.draft,
        "linked": model.linked,
        "from_catalog": model.from_catalog,
        "projector": model.projector[0] or None,
    }


def _head(registry: Registry, target: Path) -> tuple[DraftHead | None, str]:
    """The draft head of an installed model, or why none fits; nothing for a broken model."""
    try:
        return registry.head(target, complete=False)
    except BadGGUF:
        return None, ""


def _head_row(found: tuple[DraftHead | None, str] | None) -> dict[str, Any] | None:
    head, why = found or (None, "")
    if head is None:
        return {"refused": why} if why else None
    return {"kind": head.kind, "path": head.path or None, "layers": list(head.layers)}


def _paths(name: str, target: Path, draft: Path | None) -> dict[str, str | None]:
    return {"model": name, "path": str(target), "draft_path": str(draft) if draft else None}


def _lines(
    said: describe.Description, draft: describe.Description | None = None
) -> list[tuple[str, str]]:
    lines = [
        ("file", f"{said.file}, {show_bytes(said.file_bytes)}"),
        ("name", said.name or "-"),
        ("architecture", f"{said.architecture}, {said.layers} layers"),
        ("parameters", f"{said.parameters:,} at {said.bits_per_weight} bits"),
    ]
    for group in said.groups:
        types = " + ".join(f"{name} {show_bytes(size)}" for name, size in group.types.items())
        lines.append((f"  {group.name}"[:16], types))
    digest = said.chat_template_sha256
    lines += [
        ("context", f"{said.context_length:,} tokens trained"),
        ("vocabulary", f"{said.vocabulary_size:,} tokens, {said.tokenizer}"),
        ("chat template", f"sha256 {digest[:_SHOWN_DIGITS]}" if digest else templates.NONE),
    ]
    for what, part in (("target", said), ("draft", draft)):
        if part is not None:
            kept = part.memory
            held = f"{show_bytes(kept.weight_bytes)} weights"
            if kept.kv_bytes:
                held += f" + {show_bytes(kept.kv_bytes)} KV cache for {kept.context:,} tokens"
            lines.append((f"memory {what}", held))
    return lines
