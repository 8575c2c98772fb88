"""`localspec models` as a user types it: data on stdout, progress on stderr, exit codes."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import gguf
import heads
import pytest
import terminal
import tiny
from click.testing import CliRunner, Result

from localspec.catalog import entries, verified
from localspec.catalog.transfer import Step
from localspec.cli import models as command
from localspec.cli.main import cli
from localspec.cli.progress import shown


@pytest.fixture
def models_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty models directory that the command uses."""
    directory = tmp_path / "models"
    directory.mkdir()
    monkeypatch.setenv("LOCALSPEC_MODELS", str(directory))
    return directory


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    """A target and a draft of one family, as a user would have downloaded them."""
    target = tiny.build(tmp_path / "Big-Model.gguf")
    return target, tiny.build(tmp_path / "small.gguf", seed=1, layers=1)


def run(*arguments: str | Path) -> Result:
    """`localspec models ...` through the real edge, which maps errors to exit codes."""
    return CliRunner().invoke(cli, ["models", *map(str, arguments)])


def said(*arguments: str | Path) -> Any:
    """The JSON of the last line of a command that succeeded."""
    result = run(*arguments, "--json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout.splitlines()[-1])


def test_import_show_check_list_rm_tell_one_story(
    models_dir: Path, files: tuple[Path, Path]
) -> None:
    """A user's pair: imported, paired, described, listed, and every byte given back."""
    target, draft = files
    assert said("import", draft)["name"] == "small"
    imported = said("import", target, "--name", "big", "--draft", "small")
    assert (imported["name"], imported["draft"]) == ("big", "small")
    shown_json = said("show", "BIG", "--context", "512")
    assert shown_json["memory"]["kv_bytes"] == 512 * 2 * 2 * 32 * 2
    assert shown_json["draft_memory"]["kv_bytes"] == 512 * 1 * 2 * 32 * 2
    pair = {"can_speculate": True, "difference": "", "shared_tokens": 262, "by_text": False}
    assert said("check", "big", "small") == pair
    here = {row["name"] for row in said("list")["models"] if row["installed"]}
    assert here == {"big", "small"}
    assert said("rm", "big", "--yes") == {"model": "big", "freed_bytes": target.stat().st_size}
    assert sorted(path.name for path in models_dir.iterdir()) == ["drafts.json", "small.gguf"]
    assert json.loads((models_dir / "drafts.json").read_text()) == {}
    assert target.exists()


def test_the_human_output_names_what_matters(models_dir: Path, files: tuple[Path, Path]) -> None:
    """Tables and sentences for people: sizes, quantization, template hash, memory."""
    run("import", files[0], "--name", "big")
    table = run("list").stdout
    assert "big" in table
    assert "catalog" in table
    assert run().stdout == run("--help").stdout
    page = run("show", "big").stdout
    for words in (
        "llama, 2 layers",
        "attention",
        "Q4_0",
        "262 tokens, gpt2",
        "sha256 ",
        "memory loaded",
        "memory at most",
    ):
        assert words in page
    assert run("show", "big", "--template").stdout.rstrip("\n") == tiny.TEMPLATE.rstrip("\n")
    removed = run("rm", "big", "--yes")
    assert removed.stdout.startswith("removed big: ")
    assert "came back" in removed.stdout
    assert models_dir.exists()


def test_a_draft_head_is_listed_with_its_model(models_dir: Path) -> None:
    """The head that drafts for a model, and why one that does not fit is left out."""
    heads.qwen2(models_dir / "big.gguf")
    heads.eagle3(models_dir / "mine.gguf")
    (row,) = [row for row in said("list")["models"] if row["name"] == "big"]
    assert row["head"] == {
        "kind": "eagle3", "path": str(models_dir / "mine.gguf"), "layers": [1, 2, 3]
    }  # fmt: skip
    table = run("list")
    assert "EAGLE-3 head mine.gguf" in table.stdout
    assert "skipped" not in table.stderr
    heads.eagle3(models_dir / "mine.gguf", hidden=32)
    assert "states of 32 numbers" in said("list")["models"][0]["head"]["refused"]
    assert "skipped mine.gguf" in run("list").stderr


def test_a_linked_model_costs_and_frees_nothing(models_dir: Path, files: tuple[Path, Path]) -> None:
    """--link leaves the file where it is; rm removes the link only."""
    assert said("import", files[0], "--link")["name"] == "big-model"
    assert (models_dir / "big-model.gguf").is_symlink()
    assert said("rm", "big-model", "--yes")["freed_bytes"] == 0
    assert files[0].exists()
    assert list(models_dir.iterdir()) == []


@pytest.mark.parametrize(
    ("answer", "gone"), [("y\n", True), ("yes\n", True), ("n\n", False), ("\n", False), ("", False)]
)
def test_removing_asks(
    models_dir: Path, files: tuple[Path, Path], answer: str, *, gone: bool
) -> None:
    """By name and size, and what else it costs; nothing goes without a yes."""
    run("import", files[1])
    run("import", files[0], "--name", "big", "--draft", "small")
    result = CliRunner().invoke(cli, ["models", "rm", "small"], input=answer)
    assert "Remove small (" in result.stderr
    assert "big will go without its draft" in result.stderr
    assert (result.exit_code == 0) == gone
    assert (models_dir / "small.gguf").exists() != gone
    assert gone or "Nothing was done" in result.stderr or "--yes" in result.stderr


def test_a_file_of_ones_own_is_pulled_like_any_other(
    models_dir: Path, files: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """By its path or its name where one stands; twice is once; its draft is found among models."""
    monkeypatch.chdir(files[0].parent)
    for path in ("./Big-Model.gguf", str(files[0]), "Big-Model.gguf", files[0].as_uri()):
        result = run("pull", path, "--no-draft")
        assert result.exit_code == 0, result.stderr
    assert [path.name for path in models_dir.glob("*.gguf")] == ["big-model.gguf"]
    assert said("pull", "./small.gguf", "--name", "other", "--no-draft")["model"] == "other"


@pytest.mark.parametrize(
    ("path", "code", "says"),
    [
        ("./none.gguf", 69, "There is no file none.gguf"),
        ("~/none.gguf", 69, "There is no file /"),
        ("{}", 69, "is a directory"),
        ("none.gguf", 2, "There is no model"),
        ("./page.gguf", 65, "page.gguf cannot be used"),
    ],
)
def test_a_path_that_is_no_model_says_so(  # noqa: PLR0917  fixtures and a case
    models_dir: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    path: str,
    code: int,
    says: str,
) -> None:
    """And nothing is left of it."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "page.gguf").write_bytes(b"<!DOCTYPE html>")
    result = run("pull", path.format(tmp_path))
    assert result.exit_code == code
    assert says in result.stderr
    assert list(models_dir.iterdir()) == []


def test_a_file_that_is_no_model_is_not_imported(models_dir: Path, tmp_path: Path) -> None:
    """The gate speaks before anything is copied: exit code 65, one sentence, what to do."""
    page = tmp_path / "page.gguf"
    page.write_bytes(b"<!DOCTYPE html>")
    result = run("import", page)
    assert result.exit_code == 65
    assert result.stderr.startswith("error: page.gguf cannot be used. It starts with")
    assert list(models_dir.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (("show", "qwen2.5-coder-1.5b-instruct"), 2, "localspec models pull"),
        (("pull", ""), 2, "MODEL is empty"),
        (("show", "no-such-model-at-all"), 2, "localspec models list"),
        (("pull", "qwen2.5-coder-1.5b-instuct"), 2, "Did you mean qwen2.5-coder-1.5b-instruct"),
        (("rm", "smollm2-135m-instruct"), 2, "not on this machine"),
        (("rm", "../../etc"), 2, "There is no model"),
        (("import", "{target}", "--name", "../x"), 65, "cannot be a model's name"),
        (("import", "{target}", "--name", "smollm2-135m-instruct"), 65, "taken"),
        (("import", "{target}", "--draft", "nobody"), 2, "There is no model"),
        (("check", "{target}", "{wordless}"), 65, "cannot propose for this target"),
        (("check", "{target}", "{wordless}", "--json"), 65, ""),
        (("quantize", "nobody"), 2, "There is no model"),
        (("prune", "nobody"), 2, "There is no model"),
        (("head", "nobody"), 2, "There is no model"),
        (("head", "{target}", "--tokens", "9"), 2, "10000"),
        (("head", "{target}", "--work", "x"), 2, "--kind eagle3"),
        (("head", "{target}", "--kind", "eagle3", "--questions", "x"), 2, "does not exist"),
    ],
)
@pytest.mark.usefixtures("models_dir")
def test_errors_have_a_code_a_reason_and_a_way_out(
    files: tuple[Path, Path], tmp_path: Path, arguments: tuple[str, ...], code: int, says: str
) -> None:
    """Exit codes are those of the error tree; nothing is written by a command that fails."""
    wordless = tmp_path / "wordless.gguf"
    wordless.write_bytes(files[0].read_bytes().replace(b"gpt2", b"none", 1))
    filled = [argument.format(target=files[0], wordless=wordless) for argument in arguments]
    result = run(*filled)
    assert result.exit_code == code
    assert says in result.stderr
    assert "Traceback" not in result.output


def test_quantize_makes_a_smaller_model_and_says_how_it_went(
    models_dir: Path, tmp_path: Path
) -> None:
    """The real quantizer and the real decoder: bytes and tokens/s before and after."""
    source = tiny.build(tmp_path / "wide.gguf", quantization=gguf.GGMLQuantizationType.Q8_0)
    run("import", source)
    result = run("quantize", "wide")
    assert result.exit_code == 0, result.output
    assert result.stdout.startswith("wide-q4_0: ")
    assert "tokens/s instead of" in result.stdout
    assert (models_dir / "wide-q4_0.gguf").stat().st_size < source.stat().st_size


def test_a_head_is_kept_beside_its_model(files: tuple[Path, Path]) -> None:
    """And it is said where."""
    result = run("head", files[0], "--tokens", "10000")
    assert result.exit_code == 0, result.output
    assert "heads/Big-Model.gguf is used from the next load on" in result.stdout
    assert (files[0].parent / "heads" / "Big-Model.gguf").stat().st_size > 64 * 64


def test_a_verified_pair_is_confirmed_at_once(models_dir: Path) -> None:
    """All here and marked: `pull` without a name touches neither network nor weights."""
    for entry in entries.load().values():
        path = models_dir / entry.installed_file
        with path.open("wb") as file:
            file.truncate(entry.size_bytes)  # sparse: hashing it would fail the checksum
        verified.mark(path, entry.sha256)
    ready = said("pull")
    assert ready["stage"] == "ready"
    assert ready["path"].endswith("qwen2.5-coder-1.5b-instruct-q4_k_m.gguf")
    assert ready["draft_path"].endswith("qwen2.5-coder-0.5b-instruct-q4_0.gguf")


STEPS = [
    Step("tiny", "connecting", detail="hf:someone"),
    *(Step("tiny", "downloading", done, 1000, "hf:someone") for done in range(0, 1001, 5)),
    Step("tiny", "done", 1000, 1000),
]


def test_progress_is_lines_where_there_is_no_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    """A log gets a line per stage and per tenth, on stderr, and stdout stays clean."""
    with shown() as report:
        for step in STEPS:
            report(step)
    out, err = capsys.readouterr()
    assert out == ""
    lines = err.splitlines()
    assert lines[0] == "tiny connecting: hf:someone"
    assert lines[1] == "tiny downloading 0 B of 1 kB (0 %): hf:someone"
    assert lines[-1] == "tiny done 1 kB"
    assert len(lines) == 13


def test_progress_is_json_for_machines(capsys: pytest.CaptureFixture[str]) -> None:
    """One object per line on stdout, at least one per stage, not one per chunk."""
    with shown(as_json=True) as report:
        for step in STEPS:
            report(step)
    objects = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [item["stage"] for item in objects] == ["connecting", "downloading", "done"]
    assert objects[-1]["done_bytes"] == objects[-1]["total_bytes"] == 1000


def test_progress_is_a_bar_on_a_terminal() -> None:
    """Size, speed and time left are drawn on a real pseudo-terminal."""
    code = (
        "from localspec.catalog.transfer import Step\n"
        "from localspec.cli.progress import shown\n"
        "with shown() as report:\n"
        "    for done in range(0, 10_000_001, 100_000):\n"
        "        report(Step('tiny', 'downloading', done, 10_000_000))\n"
        "    report(Step('tiny', 'done', 10_000_000, 10_000_000))\n"
    )
    environment = os.environ | {"TERM": "xterm", "COLUMNS": "100"}
    drawn = terminal.shown([sys.executable, "-P", "-c", code], environment, 100, "stderr")
    assert b"downloading tiny" in drawn
    assert b"/10.0 MB" in drawn
    assert b"tiny done 10.0 MB" in drawn


def test_every_command_has_a_pasteable_example() -> None:
    """Help is the documentation: each command shows one line that can be pasted."""
    for name, one in command.models.commands.items():
        assert one.help is not None
        assert f"localspec models {name}" in one.help


def test_the_template_cannot_command_the_terminal(models_dir: Path, tmp_path: Path) -> None:
    """Control characters of a hostile file are not printed."""
    path = tiny.build(tmp_path / "evil.gguf")
    path.write_bytes(path.read_bytes().replace(b"tiny-0", b"\x1b[2Jx!"))
    run("import", path)
    assert "\x1b" not in run("show", "evil").stdout
    assert (models_dir / "evil.gguf").exists()


def test_a_plan_is_shown_before_a_pull_and_for_any_machine(
    models_dir: Path, files: tuple[Path, Path], tmp_path: Path
) -> None:
    """The catalog's pair on a card that was never here, and a file on described devices."""
    assert not list(models_dir.iterdir())
    on_a_card = said("plan", "qwen2.5-coder-1.5b-instruct", "--memory", "80GB")
    assert on_a_card["plan"]["target"] == {"devices": ["GPU0"], "shares": [29]}
    machine = tmp_path / "machine.toml"
    machine.write_text('[[device]]\nname = "CUDA0"\nmemory_gib = 2\n')
    run("import", files[1], "--name", "small")
    run("import", files[0], "--name", "big", "--draft", "small")
    page = run("plan", "big", "--machine", machine, "--slots", "2", "--context", "512").stdout
    for words in ("target 3 of 3 blocks on CUDA0; draft all on CUDA0", "2.15 GB free", "REMAINS"):
        assert words in page
    table, _ = page.split("\n\n")
    assert max(map(len, table.splitlines())) <= 60  # a row that a window folds is no row
    assert "2 sessions of at most 512 tokens, together 1024" in page
    here = said("plan", "big")
    assert here["devices"][-1]["name"] == "CPU"
    assert here["plan"]["context"] == 4096


def test_a_plan_for_what_is_not_there_is_refused_in_a_sentence(
    models_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An unknown device names those that there are; two machines at once are one too many."""
    assert models_dir.exists()
    config = tmp_path / "config.toml"
    config.write_text('[engine.target]\ndevices = ["CUDA3"]\n')
    monkeypatch.setenv("LOCALSPEC_CONFIG", str(config))
    name = "qwen2.5-coder-1.5b-instruct"
    refused = run("plan", name, "--memory", "24GiB")
    assert refused.exit_code == 78
    assert "There is: GPU0, CPU." in refused.stderr
    both = run("plan", name, "--memory", "24GiB", "--machine", config)
    assert "exclude each other" in both.stderr
    config.write_text("[engine.target]\ntensor_split = [0, 0]\n")
    assert "gives no device anything" in run("plan", name, "--memory", "24GiB").stderr
    config.write_text("")
    smol = run("plan", "smollm2-135m-instruct", "--memory", "24GiB")
    assert "Pull it first: localspec models pull smollm2-135m-instruct" in smol.stderr


def test_a_truncated_file_is_broken_and_says_why(
    models_dir: Path, files: tuple[Path, Path]
) -> None:
    """Not "here"; its header is read again once the file is another."""
    whole = files[0].read_bytes()
    (models_dir / "half.gguf").write_bytes(whole[: len(whole) // 2])
    for _ in range(2):  # the second time from what is remembered
        line = next(line for line in run("list").stdout.splitlines() if line.startswith("half"))
        assert "broken:" in line
        assert "here" not in line
    (row,) = [row for row in said("list")["models"] if row["name"] == "half"]
    assert row["broken"]
    (models_dir / "half.gguf").write_bytes(whole)
    assert "broken" not in run("list").stdout


def test_a_draft_that_is_larger_than_its_target_is_doubted(files: tuple[Path, Path]) -> None:
    """They fit, and it would not pay; the other way round nothing is said."""
    assert "warning: " not in run("check", *files).stderr
    done = run("check", *reversed(files))
    assert done.stdout.startswith("ok: ")
    assert "warning: The draft is larger than its target" in done.stderr
    run("import", files[0], "--name", "big")
    refused = run("import", files[1], "--name", "small", "--draft", "big")
    assert (refused.exit_code, "larger than its target" in refused.stderr) == (65, True)


def test_a_draft_that_is_left_out_is_neither_planned_nor_shown_as_memory(
    models_dir: Path, files: tuple[Path, Path]
) -> None:
    """Pages and plans agree with a load, and give the reason."""
    run("import", files[1], "--name", "little")
    run("import", files[0], "--name", "big", "--draft", "little")
    assert said("show", "big")["draft_memory"]
    little = models_dir / "little.gguf"
    cut = little.read_bytes()[:-4096]
    little.unlink()
    little.write_bytes(cut)
    done = run("show", "big")
    assert (done.exit_code, "memory draft" in done.stdout) == (0, False)
    assert "little.gguf cannot be used." in done.stdout.replace("\n" + 16 * " ", " ")
    assert "; no draft; " in run("plan", "big").stdout


def test_tab_completes_the_models_that_are_here(models_dir: Path, files: tuple[Path, Path]) -> None:
    """After -m, and where a command wants a model; the catalog's others cannot be talked to."""
    (models_dir / "small.gguf").symlink_to(files[1])
    for words in ("localspec chat -m ", "localspec tune -m ", "localspec models show "):
        done = CliRunner().invoke(
            cli,
            prog_name="localspec",
            env={
                "_LOCALSPEC_COMPLETE": "bash_complete",
                "COMP_WORDS": words,
                "COMP_CWORD": str(len(words.split())),
            },
        )
        assert done.stdout == "plain,small\n", words


def test_names_of_files_command_no_terminal(models_dir: Path, files: tuple[Path, Path]) -> None:
    """Neither a file's name nor what it says it is called, and no line is forged by one."""
    evil = models_dir / "e\x1b[2Jvil.gguf"
    evil.write_bytes(files[0].read_bytes().replace(b"tiny-0", b"\x1b[2J\nx"))
    for page in (run("list").stdout, run("show", str(evil)).stdout):
        assert "\x1b" not in page
        assert r"\x1b[2" in page
        assert not any(line.startswith("x") for line in page.splitlines())
