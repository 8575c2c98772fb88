"""`localspec models verify`: checks that models' files are still as they were fetched."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import click
import msgspec

from localspec.catalog import entries, header, verified
from localspec.catalog.registry import Model, Registry
from localspec.catalog.transfer import Report, Step
from localspec.cli import chosen
from localspec.cli.columns import columns, hung
from localspec.cli.names import complete_models
from localspec.cli.progress import shown
from localspec.errors import BadGGUF, ModelError, UnknownModel


class Verdict(msgspec.Struct, frozen=True):
    """The state of one file, and a sentence. For "unknown" only the header could be checked."""

    model: str
    file: str
    state: Literal["ok", "damaged", "unknown"]
    sentence: str


@click.command("verify")
@click.argument("names", nargs=-1, metavar="[MODEL]...", shell_complete=complete_models)
@click.option("--json", "as_json", is_flag=True, help="JSON on stdout, for machines.")
@click.pass_context
def verify_files(context: click.Context, names: tuple[str, ...], *, as_json: bool) -> None:
    """Read the files of each MODEL, or of all, and compare them with their SHA-256.

    It is known of what was pulled. A file that was imported or made here has none; its header is
    read. Exit code 65 if a file is damaged.

    Example: localspec models verify qwen2.5-coder-1.5b-instruct
    """
    registry = Registry(chosen.models_directory())
    found = [registry.find(name) for name in names] or registry.models()
    for model in found:
        if names and not model.installed:
            raise UnknownModel(f"{model.name} is not here.", fix=f"localspec pull {model.name}")
    here = [(model, model.path) for model in found if model.path]
    if not here and not as_json:
        click.echo("There is no model here.", err=True)
    with shown(as_json=False) as report:
        verdicts = [_verdict(model, path, report) for model, path in here]
    for verdict in verdicts:
        said = hung(f"{verdict.state}: ", f"{verdict.model}: {verdict.sentence}", columns())
        click.echo(msgspec.json.encode(verdict).decode() if as_json else said)
    if any(verdict.state == "damaged" for verdict in verdicts):
        context.exit(ModelError.exit_code)


def _verdict(model: Model, path: Path, report: Report) -> Verdict:
    known = _known(model, path)
    try:
        header.read(path)
        found = verified.digest(
            path, lambda done: report(Step(model.name, "verifying", done, model.size_bytes))
        )
    except (BadGGUF, OSError) as error:
        return Verdict(model.name, path.name, "damaged", str(error))
    if not known:
        return Verdict(
            model.name, path.name, "unknown", f"no SHA-256 is known of it; this one is {found}"
        )
    if found == known:
        return Verdict(model.name, path.name, "ok", f"SHA-256 {found}")
    verified.forget(path)
    return Verdict(
        model.name,
        path.name,
        "damaged",
        f"the SHA-256 of {path} is {found}, and was {known}. Fetch it again: "
        f"localspec models rm {model.name}; localspec pull {model.name}",
    )


def _known(model: Model, path: Path) -> str:
    """The digest of the file as it was published; "" if none is known or the file was made here."""
    entry = entries.load().get(model.name)
    if entry and entry.quantized_file:
        return ""
    return entry.sha256 if entry and entry.file == path.name else verified.recorded(path)
