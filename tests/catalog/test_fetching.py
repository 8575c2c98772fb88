"""Any model by name, over real HTTP: chosen, fetched, joined, paired and remembered."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import projectors
import pytest
import tiny
from click.testing import CliRunner, Result

from localspec.catalog import header, joining, origins
from localspec.catalog.registry import Registry
from localspec.catalog.repository import Hit
from localspec.cli import fetching
from localspec.cli.main import cli
from localspec.errors import NotRunning

REPO = "someone/tiny-GGUF"


@pytest.fixture
def models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty models directory that the command uses."""
    directory = tmp_path / "models"
    monkeypatch.setenv("LOCALSPEC_MODELS", str(directory))
    return directory


@pytest.fixture
def split(tmp_path: Path) -> list[Path]:
    """A sound model in several files."""
    tiny.build(tmp_path / "Tiny-Q4_0.gguf", split_tensors=7)
    return sorted(tmp_path.glob("Tiny-Q4_0-*.gguf"))


def run(*arguments: str) -> Result:
    """`localspec models ...` through the real edge, which maps errors to exit codes."""
    return CliRunner().invoke(cli, ["models", *arguments])


def serve(hub: Any, *paths: Path) -> None:
    """Put files into the Hub's repository."""
    hub.files |= {path.name: path.read_bytes() for path in paths}


def test_parts_are_joined_into_what_was_split(split: list[Path], tmp_path: Path) -> None:
    """The joined file has all keys but the parts' own, and all tensors; progress is reported."""
    whole = tiny.build(tmp_path / "whole.gguf")
    heard: list[int] = []
    joining.join(split, tmp_path / "joined.gguf", heard.append)
    assert (
        header.read(tmp_path / "joined.gguf").metadata.keys() == header.read(whole).metadata.keys()
    )
    ours, theirs = (gguf.GGUFReader(path).tensors for path in (tmp_path / "joined.gguf", whole))
    assert [tensor.name for tensor in ours] == [tensor.name for tensor in theirs]
    assert all(np.array_equal(a.data, b.data) for a, b in zip(ours, theirs, strict=True))
    assert heard == sorted(heard)
    assert heard[-1] == header.read(whole).weight_bytes


def test_a_split_model_is_pulled_by_its_repository(
    hub: Any, split: list[Path], models: Path
) -> None:
    """Each part is checked by the hash that the Hub lists; what remains is one file."""
    serve(hub, *split)
    result = run("pull", REPO)
    assert result.exit_code == 0, result.output
    assert f"{REPO}, licence apache-2.0: Q4_0" in result.stderr
    assert sorted(path.name for path in models.glob("*.gguf")) == ["tiny-q4_0.gguf"]
    assert not (models / ".tiny-q4_0").exists()
    registry = Registry(models)
    names = ("tiny-q4_0", REPO, f"{REPO}:q4_0")
    assert {registry.resolve(name).target_path.name for name in names} == {"tiny-q4_0.gguf"}
    asked = len(hub.tokens)
    assert run("pull", REPO).exit_code == 0
    assert len(hub.tokens) == asked  # what is here needs no network


def test_a_part_that_is_missing_or_another_models_is_refused(
    split: list[Path], tmp_path: Path, models: Path
) -> None:
    """Importing a split model checks its parts."""
    beside = tmp_path / "other"
    beside.mkdir()
    for path in split:
        (beside / path.name).write_bytes(path.read_bytes())
    (beside / split[1].name).write_bytes(split[2].read_bytes())
    first = str(beside / split[0].name)
    assert "not the parts of one model" in run("import", first).stderr
    (beside / split[1].name).unlink()
    assert "is not beside it" in run("import", first).stderr
    assert list(models.glob("*")) == []
    assert run("import", str(split[0])).exit_code == 0
    assert Registry(models).resolve("tiny-q4_0").target_path.exists()


def test_a_file_of_any_server_is_fetched_resumed_and_never_gets_the_token(
    hub: Any, tmp_path: Path, models: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file is fetched and resumed; the token goes to the Hub only."""
    path = tiny.build(tmp_path / "Plain.gguf")
    serve(hub, path)
    monkeypatch.setenv("HF_TOKEN", "secret")
    monkeypatch.delenv("HF_ENDPOINT")
    hub.cuts, hub.cut_after = 1, 30_000
    result = run("pull", f"{hub.endpoint}/files/Plain.gguf", "--name", "mine", "--json")
    assert result.exit_code == 0, result.output
    assert (models / "mine.gguf").read_bytes() == path.read_bytes()
    assert hub.ranges == [None, "bytes=30000-"]
    assert {token for _, token in hub.tokens} == {None}
    assert json.loads(result.stdout.splitlines()[-1])["model"] == "mine"


def test_gated_missing_and_unreachable_are_three_sentences(
    hub: Any, tmp_path: Path, models: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each error says what to do."""
    serve(hub, tiny.build(tmp_path / "tiny-Q4_0.gguf"))
    hub.gated = True
    told = run("pull", REPO).stderr
    assert f"Agree on https://huggingface.co/{REPO} and set HF_TOKEN" in told
    assert "network" not in told
    assert "models search nothing" in run("pull", "someone/nothing").stderr
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    assert "Python package index" in run("pull", REPO).stderr
    monkeypatch.delenv("HF_HUB_OFFLINE")
    monkeypatch.setenv("HF_TOKEN", "mine")
    result = run("pull", REPO)
    assert result.exit_code == 0, result.output
    assert hub.tokens[-1][1] == "Bearer mine"
    assert list(models.glob("*.partial")) == []


def test_a_model_of_another_origin_is_not_replaced(hub: Any, tmp_path: Path, models: Path) -> None:
    """Two repositories may have a file of the same name; removing a model forgets its origin."""
    serve(hub, tiny.build(tmp_path / "tiny-Q4_0.gguf"))
    hub.repos.append("other/tiny-GGUF")
    assert run("pull", REPO).exit_code == 0
    assert "--name" in run("pull", "other/tiny-GGUF").stderr
    assert run("pull", "other/tiny-GGUF", "--name", "other").exit_code == 0
    assert run("rm", "other/tiny-gguf", "--yes").exit_code == 0
    assert list(origins.read(models)) == ["tiny-q4_0.gguf"]
    assert "models pull other/tiny-GGUF" in run("show", "other/tiny-GGUF").stderr


def test_the_draft_that_is_here_is_attached_and_what_it_may_bring_is_said(
    hub: Any, tmp_path: Path, models: Path
) -> None:
    """A smaller model of the same vocabulary is attached, as INT4; others are passed over."""
    models.mkdir()
    slow = gguf.GGMLQuantizationType.Q5_0
    tiny.build(models / "small.gguf", layers=1, width=32, quantization=slow)
    tiny.build(models / "stranger.gguf", layers=1, width=32, extra_tokens=3)
    serve(hub, tiny.build(tmp_path / "Big-Q4_0.gguf", layers=6, width=128))
    result = run("pull", REPO)
    assert result.exit_code == 0, result.output
    assert Registry(models).find("big-q4_0").draft == "small-q4_0"
    assert "small-q4_0 drafts for it: answers should come" in result.stderr


def test_a_family_of_the_catalog_brings_its_draft(hub: Any, tmp_path: Path, models: Path) -> None:
    """A short name is enough; the pair is checked from the headers before it is one."""
    repo, small = "Qwen/Qwen3-8B-GGUF", "Qwen/Qwen3-0.6B-GGUF"
    hub.repos += [repo, small]
    serve(hub, tiny.build(tmp_path / "Qwen3-8B-Q4_K_M.gguf", layers=6, width=128))
    assert f"{small} could draft" in run("pull", "qwen3-8b").stderr
    hub.files.clear()
    serve(hub, tiny.build(tmp_path / "Qwen3-0.6B-Q8_0.gguf", layers=1, width=32))
    result = run("pull", "qwen3-8b", "--draft")
    assert result.exit_code == 0, result.output
    assert Registry(models).find(repo).draft == "qwen3-0.6b-q8_0"


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("qwen3-8b", "models pull qwen3-8b"),
        ("Qwen3", "qwen3-0.6b, qwen3-1.7b"),
        ("llama", "llama3.2-1b, llama3.2-3b"),
        ("mistral-small", "models pull mistral-small-24b"),
        ("nosuch", "models list"),
    ],
)
def test_a_name_that_the_catalog_knows_says_how_to_fetch_it(name: str, said: str) -> None:
    """Every command's error names the command that fetches it; a family lists its models."""
    for command in (("show", name), ("plan", name)):
        assert said in run(*command).stderr


@pytest.mark.parametrize("form", ["{}.part{}of2", "{}-split-{}"])
def test_a_file_that_was_cut_is_put_together(
    hub: Any, tmp_path: Path, models: Path, form: str
) -> None:
    """By pull and by import of any of its pieces."""
    whole = tiny.build(tmp_path / "Tiny-Q4_0.gguf").read_bytes()
    pieces = [whole[:70_000], whole[70_000:]]
    places = ("1", "2") if "part" in form else ("a", "b")
    names = [form.format("Tiny-Q4_0.gguf", place) for place in places]
    hub.files |= dict(zip(names, pieces, strict=True))
    assert run("pull", REPO).exit_code == 0
    assert (models / "tiny-q4_0.gguf").read_bytes() == whole
    for name, piece in zip(names, pieces, strict=True):
        (tmp_path / name).write_bytes(piece)
    assert run("import", str(tmp_path / names[1]), "--name", "again").exit_code == 0
    assert (models / "again.gguf").read_bytes() == whole


@pytest.mark.parametrize(
    "name", ["mtp-Tiny-Q8_0.gguf", "MTP/Tiny-Q8_0-MTP.gguf", "mmproj-F16.gguf", "lora-f16.gguf"]
)
def test_what_is_no_model_is_refused_by_what_it_is(
    hub: Any, tmp_path: Path, models: Path, name: str
) -> None:
    """Other files beside a model are passed over; asked for alone or by URL they are named."""
    whole = tiny.build(tmp_path / "Tiny-Q4_0.gguf").read_bytes()
    hub.files |= {name: whole, "Tiny-Q4_0.gguf": whole}
    assert "no model by itself" in run("pull", f"{REPO}:{name}").stderr
    if "/" not in name:
        assert "no model by itself" in run("pull", f"{hub.endpoint}/files/{name}").stderr
    assert run("pull", REPO).exit_code == 0
    kept = {path.name for path in models.glob("*.gguf")} - {"mmproj-tiny-q4_0.gguf"}
    assert kept == {"tiny-q4_0.gguf"}
    del hub.files["Tiny-Q4_0.gguf"]
    assert run("rm", REPO, "--yes").exit_code == 0
    if "/" not in name:  # a folder with all files tells nothing
        assert "has no model" in run("pull", REPO).stderr
        assert list(models.glob("*.gguf")) == []


def test_a_repository_of_draft_heads_is_refused_before_it_is_fetched(
    hub: Any, tmp_path: Path, models: Path
) -> None:
    """Names that would suit a model too are decided by the Hub's view of the header."""
    serve(hub, tiny.build(tmp_path / "Tiny-8B-MTP-Q4_0.gguf"))
    hub.architecture = "gemma4-assistant"
    assert "drafts for a Gemma 4" in run("pull", REPO).stderr
    assert hub.ranges == []
    assert not models.exists()
    hub.architecture = "llama"
    assert run("pull", REPO).exit_code == 0


def test_what_was_refused_leaves_nothing_and_its_name_is_free(
    hub: Any, tmp_path: Path, models: Path, split: list[Path]
) -> None:
    """Nothing is left of a refused file, whole or in parts, from the Hub, a URL, or as a draft."""
    sound = tiny.build(tmp_path / "Tiny-Q4_0.gguf").read_bytes()
    hub.files = {"Tiny-Q4_0.gguf": sound[:-5000] + b"x" * 300_000}
    for command in ((REPO,), (f"{hub.endpoint}/files/Tiny-Q4_0.gguf",)):
        assert run("pull", *command).exit_code != 0
        assert not [path for path in models.iterdir() if not path.name.startswith(".verified")]
    hub.files = {path.name: path.read_bytes() for path in (*split[:-1], split[0])}
    hub.files[split[-1].name] = split[0].read_bytes()
    assert "not the parts of one model" in run("pull", REPO).stderr
    assert not [path for path in models.iterdir() if not path.name.startswith(".verified")]
    hub.files = {"Tiny-Q4_0.gguf": sound}
    assert run("pull", REPO).exit_code == 0
    small = "Qwen/Qwen3-0.6B-GGUF"
    hub.repos += ["Qwen/Qwen3-8B-GGUF", small]
    hub.files = {}
    serve(hub, tiny.build(tmp_path / "Qwen3-8B-Q4_K_M.gguf", layers=6, width=128))
    assert run("pull", "qwen3:8b", "--no-draft").exit_code == 0
    hub.files.clear()
    serve(hub, tiny.build(tmp_path / "Qwen3-0.6B-Q8_0.gguf", extra_tokens=4))
    models_before = sorted(path.name for path in models.glob("*.gguf"))
    (models / "tiny-q4_0.gguf").unlink()  # it would be taken for the draft
    assert "Without a draft" in run("pull", "qwen3:8b", "--draft").stderr
    left = sorted(path.name for path in models.glob("*.gguf"))
    assert left == [name for name in models_before if name != "tiny-q4_0.gguf"]
    assert list(origins.read(models)) == left


@pytest.mark.parametrize("name", ["../out", "/root/out", ".hidden", "a b", "x" * 121, "a\n"])
def test_a_name_that_leads_out_of_the_directory_is_refused(
    hub: Any, tmp_path: Path, models: Path, name: str
) -> None:
    """The name is refused before anything is fetched, as for an import."""
    serve(hub, tiny.build(tmp_path / "tiny-Q4_0.gguf"))
    refused = run("pull", REPO, "--name", name)
    assert refused.exit_code != 0
    assert "cannot be a model's name" in refused.stderr
    assert hub.ranges == []
    assert not models.exists()


@pytest.mark.parametrize("length", ["-5", "0", "1e9", "", "nine", "99999999999999999999999"])
def test_a_length_that_is_none_is_not_shown(hub: Any, models: Path, length: str) -> None:
    """An invalid Content-Length of any server is ignored."""
    hub.files["Tiny.gguf"] = b"GGUF"
    hub.length = length
    result = run("pull", f"{hub.endpoint}/files/Tiny.gguf")
    assert "does not say how long the file is" in result.stderr
    assert not models.exists() or list(models.glob("*.gguf*")) == []


@pytest.mark.parametrize(
    ("said", "repo"),
    [
        ("gemma3", "ggml-org/gemma-3-4b-it-GGUF"),
        ("llama3.2", "bartowski/Llama-3.2-3B-Instruct-GGUF"),
        ("Llama3.2:1B", "bartowski/Llama-3.2-1B-Instruct-GGUF"),
        ("phi4", "bartowski/phi-4-GGUF"),
        ("qwen3:8b", "Qwen/Qwen3-8B-GGUF"),
        ("qwen3:latest", "Qwen/Qwen3-8B-GGUF"),
        ("qwen3:30b-a3b-instruct", "Qwen/Qwen3-30B-A3B-GGUF"),
        ("qwen2.5-coder:7b-instruct-q4_K_M", "Qwen/Qwen2.5-Coder-7B-Instruct-GGUF"),
    ],
)
def test_a_family_or_a_name_with_a_colon_is_pulled_and_then_answers_to_it(
    hub: Any, tmp_path: Path, models: Path, said: str, repo: str
) -> None:
    """Names in Ollama's form work; a quantization after the colon is the one fetched."""
    hub.repos = [repo]
    serve(hub, tiny.build(tmp_path / "m-Q4_K_M.gguf"), tiny.build(tmp_path / "m-Q8_0.gguf"))
    result = run("pull", said, "--no-draft")
    assert result.exit_code == 0, result.output
    registry = Registry(models)
    assert registry.resolve(said).target_path.name == "m-q4_k_m.gguf"
    assert registry.resolve(said.upper()).name == "m-q4_k_m"
    asked = len(hub.tokens)
    assert run("pull", said, "--no-draft").exit_code == 0
    assert len(hub.tokens) == asked


def test_a_name_with_a_quantization_is_that_one(hub: Any, tmp_path: Path, models: Path) -> None:
    """The named quantization is fetched beside another one of the same repository."""
    hub.repos = ["Qwen/Qwen3-8B-GGUF"]
    serve(hub, tiny.build(tmp_path / "m-Q4_K_M.gguf"), tiny.build(tmp_path / "m-Q8_0.gguf"))
    for said, name in (("qwen3:8b", "m-q4_k_m"), ("qwen3:8b-q8_0", "m-q8_0")):
        assert run("pull", said, "--no-draft").exit_code == 0
        assert Registry(models).resolve(said).name == name
    assert "Q5_0" in run("pull", "qwen3:8b-q5_0").stderr


def test_a_file_whose_name_says_nothing_is_called_as_its_repository(
    hub: Any, tmp_path: Path, models: Path
) -> None:
    """Two repositories have a "model-q4_0.gguf" each."""
    serve(hub, tiny.build(tmp_path / "ggml-model-Q4_0.gguf"))
    hub.repos.append("other/small-GGUF")
    assert run("pull", REPO).exit_code == 0
    assert run("pull", "other/small-GGUF").exit_code == 0
    assert sorted(path.name for path in models.glob("*.gguf")) == [
        "small-q4_0.gguf",
        "tiny-q4_0.gguf",
    ]


def test_a_model_of_the_catalog_answers_to_a_colon_too(models: Path) -> None:
    """A catalog entry precedes a family's repository."""
    registry = Registry(models)
    for said in ("qwen2.5-coder:1.5b", "qwen2.5-coder:1.5b-instruct", "smollm2:135m"):
        assert registry.find(said).from_catalog
        assert fetching.reference_of(said) is None


def test_a_search_shows_what_the_hub_has(hub: Any) -> None:
    """Most fetched first, with licences; an empty result is reported."""
    hub.repos.append("someone/Other-GGUF")
    assert "someone/tiny-GGUF" in run("search", "tiny").stdout
    assert "no GGUF repository" in run("search", "nosuch").stdout
    hit = Hit("someone-with-a-long-name/Other-GGUF", 12_345, 6, "mit")
    assert [*fetching.table([hit], 60)] == [hit.name, "  12,345 fetched, 6 likes, mit"]
    assert max(map(len, fetching.table([hit], 80))) <= 80
    assert (
        json.loads(run("search", "some", "--json").stdout)["models"][1]["license"] == "apache-2.0"
    )


def test_a_chat_offers_to_fetch_what_is_elsewhere(hub: Any, tmp_path: Path, models: Path) -> None:
    """A chat at a terminal offers it; afterwards it goes on as if the model had been here."""
    serve(hub, tiny.build(tmp_path / "tiny-Q4_0.gguf"))
    ours, theirs = pty.openpty()
    os.write(ours, b"y\n")
    chat = [
        sys.executable,
        "-P",
        "-m",
        "localspec.cli.main",
        "chat",
        "--no-spawn",
        "-m",
        REPO,
        "hi",
    ]
    environment = os.environ | {"XDG_RUNTIME_DIR": str(tmp_path)}
    with subprocess.Popen(chat, stdin=theirs, stderr=theirs, env=environment) as process:
        os.close(theirs)
        assert process.wait(60) == NotRunning.exit_code
    os.close(ours)
    assert Registry(models).resolve(REPO).target_path.name == "tiny-q4_0.gguf"


def test_a_projector_comes_with_its_model(hub: Any, tmp_path: Path, models: Path) -> None:
    """The best of those that are there, by the model's name; it goes with it."""
    serve(hub, tiny.build(tmp_path / "Tiny-Q4_0.gguf"))
    for number, label in enumerate(("F32", "F16", "Q8_0")):
        serve(hub, projectors.build(tmp_path / f"mmproj-{label}.gguf", seed=number))
    result = run("pull", REPO)
    assert result.exit_code == 0, result.output
    assert "for images mmproj-F16.gguf" in result.stderr
    kept = models / "mmproj-tiny-q4_0.gguf"
    assert kept.read_bytes() == (tmp_path / "mmproj-F16.gguf").read_bytes()
    registry = Registry(models)
    assert registry.find("tiny-q4_0").projector == (str(kept), "")
    shown = run("list").stdout
    assert f"reads images by {kept.name}" in " ".join(shown.split())
    assert "skipped" not in run("list").stderr
    assert run("rm", "tiny-q4_0", "--yes").exit_code == 0
    assert list(models.glob("*.gguf")) == []


def test_a_projector_that_is_broken_is_deleted(hub: Any, tmp_path: Path, models: Path) -> None:
    """The model stays, and the next pull tries again."""
    serve(hub, tiny.build(tmp_path / "Tiny-Q4_0.gguf"))
    hub.files["mmproj-F16.gguf"] = b"GGUF" + bytes(100)
    result = run("pull", REPO)
    assert result.exit_code != 0
    assert "mmproj-tiny-q4_0.gguf" in result.stderr
    assert [path.name for path in models.glob("*.gguf")] == ["tiny-q4_0.gguf"]


def test_an_imported_model_brings_its_projector(tmp_path: Path, models: Path) -> None:
    """The one that lies beside it and is named after it."""
    tiny.build(tmp_path / "tiny-Q4_0.gguf")
    projectors.build(tmp_path / "mmproj-tiny-f16.gguf")
    projectors.build(tmp_path / "mmproj-other-f16.gguf")
    for name, more in (("one", ()), ("two", ("--link",))):
        result = run("import", str(tmp_path / "tiny-Q4_0.gguf"), "--name", name, *more)
        assert result.exit_code == 0, result.output
        assert Registry(models).find(name).sees
    assert sorted(path.name for path in models.glob("mmproj*")) == [
        "mmproj-one.gguf",
        "mmproj-two.gguf",
    ]
