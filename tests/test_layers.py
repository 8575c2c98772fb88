"""The shape of the code, read off its syntax trees: what may import what, and where native code is.

A room imports itself and rooms that stand below it (docs/architecture.md draws them):

localspec_daemon:  http, page ─▶ supervisor ─▶ api ─▶ catalog, chats
cli ─▶ bench, build, client, catalog, chats, corpus, text
worker ─▶ catalog, corpus, text, prefixes, drafters ─▶ engine
microbench ─▶ drafters ─▶ engine ─▶ exactness, speculation ─▶ llama ─▶ kv ─▶ engine.core ─▶ control
wire ─▶ config ─▶ the leaves
"""

from __future__ import annotations

import ast
import graphlib
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

REPOSITORY = Path(__file__).resolve().parent.parent
ROOTS = (REPOSITORY / "localspec", REPOSITORY / "daemon" / "localspec_daemon")

LEAVES = {
    "errors", "chain", "types", "toml", "ranges", "machine", "config", "wire", "paths", "wording",
    "web_origins", "forward_counts", "streams", "outdated", "addresses", "built", "config_checks",
    "config_file",
}  # fmt: skip
ENGINE = {"engine.core", "engine.kv", "engine.llama", "engine.exactness", "engine.speculation"}
CORE = {
    "session", "rows", "pieces", "sampling", "verify", "likelihood", "block_max", "chain",
    "images", "forward_thread", "routing", "scheduler",
}  # fmt: skip
"""Files of engine/ that are below its packages: a session, its rows, how its tokens are drawn."""
MAY_IMPORT: dict[str, set[str]] = {
    "errors": set(),
    "paths": {"errors"},
    "chain": set(),
    "forward_counts": set(),
    "types": {"errors", "chain", "forward_counts"},
    "toml": set(),
    "wording": set(),
    "web_origins": set(),
    "addresses": set(),
    "built": set(),
    "build": {"errors", "built"},
    "streams": set(),
    "outdated": set(),
    "ranges": {"errors", "chain"},
    "machine": {"errors", "wording"},
    "config_checks": {"errors", "addresses"},
    "config_file": {"errors", "paths"},
    "config": {
        "config_file",
        "errors",
        "chain",
        "types",
        "ranges",
        "paths",
        "wording",
        "web_origins",
        "outdated",
        "addresses",
        "config_checks",
    },
    "wire": {"errors", "chain", "types", "machine", "config"},
    "control": LEAVES,
    "corpus": LEAVES,
    "engine.core": LEAVES | {"control"},
    "engine.kv": LEAVES | {"control", "engine.core"},
    "engine.llama": LEAVES | {"control", "engine.core", "engine.kv"},
    "engine.exactness": LEAVES | {"control", "engine.core", "engine.kv"},
    "engine.speculation": LEAVES | {"control", "engine.core", "engine.kv", "engine.llama"},
    "engine": LEAVES | ENGINE | {"control"},
    "drafters": LEAVES | ENGINE | {"engine"},
    "text": LEAVES,
    "prefixes": LEAVES,
    "worker": LEAVES
    | ENGINE
    | {"catalog", "control", "corpus", "engine", "drafters", "text", "prefixes"},
    "microbench": LEAVES | ENGINE | {"control", "engine", "drafters"},
    "catalog": LEAVES,
    "client": LEAVES,
    "chats": {"errors", "paths"},
    "bench": LEAVES | {"client", "catalog"},
    "cli": LEAVES | {"build", "client", "catalog", "bench", "chats", "corpus", "text", "prefixes"},
    "localspec_daemon.api": LEAVES | {"catalog"},
    "localspec_daemon.supervisor": LEAVES | {"catalog", "chats", "localspec_daemon.api"},
    "localspec_daemon.http": LEAVES
    | {"catalog", "chats", "prefixes", "localspec_daemon.api", "localspec_daemon.supervisor"},
    "localspec_daemon": LEAVES
    | {"localspec_daemon.api", "localspec_daemon.supervisor", "localspec_daemon.http"},
    "__init__": LEAVES | {"client"},  # the library's public names
}
PURE = (
    "localspec/control",
    *(f"localspec/engine/kv/{name}.py" for name in ("slots", "cells", "admission")),
    *(
        f"localspec/engine/{name}.py"
        for name in (
            "block_max", "likelihood", "sampling", "verify", "rows", "chain", "routing",
            "scheduler", "llama/thread_count",
        )
    ),
    *(f"localspec/worker/{name}.py" for name in ("loading_cost", "strict_cost")),
)  # fmt: skip
WORLD = {"asyncio", "io", "os", "pathlib", "socket", "subprocess", "threading", "time"}
MAX_LINES = 450


class Import(NamedTuple):
    """One imported module, as a dotted name, and where."""

    module: str
    line: int


class Source(NamedTuple):
    """One file of the project and what it imports at run time, inside functions too."""

    path: Path
    text: str
    imports: tuple[Import, ...]

    @property
    def name(self) -> str:
        """Its path from the repository's root, as a person would write it."""
        return self.path.relative_to(REPOSITORY).as_posix()

    @property
    def room(self) -> str:
        """The part of the drawing that it belongs to."""
        parts = self.path.relative_to(REPOSITORY).with_suffix("").parts
        return room_of(".".join(parts[parts[0] == "daemon" :]))


def room_of(module: str) -> str:
    """The room of a dotted name: its package, or one inside of engine and daemon."""
    top, *rest = module.split(".")
    if top == "localspec_daemon":
        inner = "http" if rest[:1] == ["page"] else "".join(rest[:1])
        return f"{top}.{inner}" if f"{top}.{inner}" in MAY_IMPORT else top
    if rest[:1] == ["engine"] and len(rest) > 1:
        inner = "core" if rest[1] in CORE else rest[1]
        return f"engine.{inner}" if f"engine.{inner}" in MAY_IMPORT else "engine"
    return rest[0] if rest else "__init__"


def walk(node: ast.AST) -> Iterator[ast.AST]:
    """All nodes that can run: `if TYPE_CHECKING` is left out, its `else` is not."""
    if isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING"):
        children: Iterable[ast.AST] = node.orelse
    else:
        yield node
        children = ast.iter_child_nodes(node)
    for child in children:
        yield from walk(child)


def imports(tree: ast.AST) -> Iterator[Import]:
    """Every import of a tree; `from a import b` counts as a.b, for b may be a module."""
    for node in walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield Import(alias.name, node.lineno)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute here"
            for alias in node.names:
                yield Import(f"{node.module}.{alias.name}", node.lineno)


def sources(*roots: Path) -> list[Source]:
    """All Python files below `roots`."""
    found = []
    for path in sorted(path for root in roots for path in root.rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        found.append(Source(path, text, tuple(imports(ast.parse(text)))))
    return found


CODE = sources(*ROOTS)


def ours(imported: Import) -> str | None:
    """The room that an import enters, None when it is not ours."""
    package = imported.module.partition(".")[0]
    return room_of(imported.module) if package in {"localspec", "localspec_daemon"} else None


def test_the_drawing_knows_every_room() -> None:
    """A new room gets its place in the picture before it gets code."""
    assert {source.room for source in CODE} <= set(MAY_IMPORT)


def test_arrows_point_down_only() -> None:
    """A room imports itself and what lies below it in the drawing, at run time nothing else."""
    upward = [
        f"{source.name}:{imported.line} imports {imported.module}"
        for source in CODE
        for imported in source.imports
        if (room := ours(imported)) in MAY_IMPORT
        and room != source.room
        and room not in MAY_IMPORT[source.room]
    ]
    assert upward == []


def test_the_drawing_has_no_circle() -> None:
    """The table above is an order: every room can be put after all that it may import."""
    placed: set[str] = set()
    while ready := {room for room, below in MAY_IMPORT.items() if below <= placed} - placed:
        placed |= ready
    assert placed == set(MAY_IMPORT)


def test_no_two_files_need_each_other() -> None:
    """Inside a room too, and for types only: whoever reads one file need not read it again."""
    names = {".".join(path.relative_to(root.parent).with_suffix("").parts) for root in ROOTS
             for path in root.rglob("*.py")}  # fmt: skip
    needs: dict[str, set[str]] = {name: set() for name in names}
    for source in CODE:
        root = next(root for root in ROOTS if source.path.is_relative_to(root))
        name = ".".join(source.path.relative_to(root.parent).with_suffix("").parts)
        for node in ast.walk(ast.parse(source.text)):
            if isinstance(node, ast.ImportFrom):
                asked = {f"{node.module}.{alias.name}" for alias in node.names} | {
                    node.module or ""
                }
                needs[name] |= asked & names - {name}
    graphlib.TopologicalSorter(needs).prepare()  # raises CycleError, which names them


def test_one_file_imports_llama_cpp() -> None:
    """Native code has one door."""
    doors = {
        source.name
        for source in CODE
        for imported in source.imports
        if imported.module.partition(".")[0] == "llama_cpp"
    }
    assert doors == {"localspec/engine/llama/library.py"}


def test_few_files_call_native_code() -> None:
    """Behind the door: models, contexts and their vectors, quantization, devices here and there."""
    callers = {
        source.name
        for source in CODE
        for imported in source.imports
        if imported.module == "localspec.engine.llama.library.native"
    }
    names = {"model", "context", "slot_memory", "copies", "vectors", "fed", "pooling", "quantize"}
    names |= {"devices", "rpc", "images"}
    assert callers == {f"localspec/engine/llama/{name}.py" for name in names}


def test_decisions_know_no_clock_and_no_files() -> None:
    """Control, sampling, verification and slots are functions of their arguments."""
    impure = [
        f"{source.name}:{imported.line} imports {imported.module}"
        for source in CODE
        if source.name.startswith(PURE)
        for imported in source.imports
        if imported.module.partition(".")[0] in WORLD
    ]
    assert impure == []
    assert all((REPOSITORY / name).exists() for name in PURE)


def test_only_packages_are_packages() -> None:
    """An editable install puts the repository on the path, where `daemon` would hide another's."""
    for name in ("daemon", "models", "tests", "docs"):
        assert not (REPOSITORY / name / "__init__.py").exists()


def test_one_function_reads_what_a_tilde_means() -> None:
    """Path.expanduser raises where the system does not know the user, and that ended a chat."""
    found = [source.name for source in CODE if ".expanduser(" in source.text]
    assert found == ["localspec/paths.py"]


def test_files_stay_small_and_named_after_something() -> None:
    """A file that grows is split by noun; without a noun there is no file."""
    everything = [*CODE, *sources(REPOSITORY / "tests")]
    long = {s.name: lines for s in everything if (lines := s.text.count("\n")) > MAX_LINES}
    assert long == {}
    vague = {"utils", "util", "helpers", "common", "misc", "manager"}
    assert [s.name for s in everything if s.path.stem in vague] == []


def test_a_docstring_says_what_the_thing_is() -> None:
    """Its first words are a noun or a verb and not "What it ..."."""
    begun = [
        f"{source.name}:{number}"
        for source in (*CODE, *sources(REPOSITORY / "tests"))
        for number, line in enumerate(source.text.splitlines(), 1)
        if line.lstrip().startswith('"""What')
    ]
    assert begun == []


def test_the_glossary_is_in_alphabetical_order() -> None:
    """A term is found where a reader looks for it, and once."""
    page = (REPOSITORY / "docs" / "glossary.md").read_text(encoding="utf-8")
    lines = [line.split("|") for line in page.splitlines() if line.startswith("| ")]
    terms = [line[1].strip().casefold() for line in lines if line[1].strip() not in {"term", "---"}]
    assert terms == sorted(set(terms))


def names_in(file: Path) -> Iterator[str]:
    """Functions, classes, methods, constants and fields of a file; of C++ its functions."""
    text = file.read_text(encoding="utf-8")
    if file.suffix != ".py":
        yield from re.findall(r"(\w+)\(", text)
        return
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.Assign):
            yield from (target.id for target in node.targets if isinstance(target, ast.Name))
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            yield node.target.id


def named_in(page: str) -> list[tuple[str, str]]:
    """Each `file.py` and `file.py: name` of a page, which may be broken at the end of a line."""
    found = re.findall(r"`([\w/]+\.(?:py|h|cpp))(?::\s+(\w+))?`", page)
    return [(path, name) for path, name in found if Path(path).stem != "NAME"]


def test_what_the_documents_name_is_there() -> None:
    """A file named in docs/ exists, and has the function, class or constant named behind it."""
    pages = [path for path in (REPOSITORY / "docs").rglob("*.md") if path.name != "help.md"]
    files = subprocess.check_output(["git", "ls-files"], text=True, cwd=REPOSITORY).splitlines()
    wrong = []
    for page in (REPOSITORY / "README.md", *pages):
        for path, name in named_in(page.read_text(encoding="utf-8")):
            fits = [REPOSITORY / file for file in files if f"/{file}".endswith(f"/{path}")]
            if not fits or (name and not any(name in names_in(file) for file in fits)):
                wrong.append(f"{page.name}: {path} {name}".rstrip())
    assert wrong == []


@pytest.mark.parametrize(
    ("entry", "absent"),
    [
        ("localspec.cli.main", {"llama_cpp", "numpy", "localspec.engine", "localspec_daemon"}),
        ("localspec.client", {"llama_cpp", "numpy", "localspec.engine"}),
        (
            "localspec_daemon.__main__",
            {"llama_cpp", "numpy", "localspec.engine", "localspec.worker"},
        ),
    ],
)
def test_an_entry_does_not_load_what_it_must_not(entry: str, absent: set[str]) -> None:
    """Starting the command line is quick, and the supervisor survives whatever native code does."""
    code = f"import sys, {entry}; print(*sys.modules)"
    child = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=REPOSITORY
    )
    assert child.returncode == 0, child.stderr
    assert set(child.stdout.split()) & absent == set()
