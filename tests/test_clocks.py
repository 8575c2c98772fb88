"""The clock on the wall may jump by years, either way: no waiting, timing or limit is by it."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
CODE = ("localspec", "daemon/localspec_daemon")
WALL = {
    "time.time", "time.time_ns", "time.localtime", "time.gmtime", "time.ctime", "time.strftime",
    "datetime.now", "datetime.utcnow", "datetime.today", "date.today",
}  # fmt: skip
SHOWN = {
    "localspec/text/template.py": "templates that write the date",
    "localspec/worker/assemble.py": "when exactness was decided, kept in a file",
    "localspec/cli/cache.py": "when a prompt was used, in a listing",
    "localspec/cli/chats.py": "when a conversation was held, in a listing",
    "localspec/chats/archive.py": "when a conversation was held, and its name",
    "localspec/cli/bench.py": "when a report began",
    "localspec/bench/gpu.py": "when a report was written",
    "daemon/localspec_daemon/page/memory.py": "how old the kept keys are, over restarts",
    "daemon/localspec_daemon/supervisor/supervisor.py": "when the daemon started, in metrics",
    "daemon/localspec_daemon/http/models.py": "when a model was used, in a listing",
    "daemon/localspec_daemon/http/ollama_models.py": "when a model leaves, in a listing",
    "daemon/localspec_daemon/api/responses_replies.py": "created_at of a reply",
    "daemon/localspec_daemon/api/openai_replies.py": "created of a reply",
    "daemon/localspec_daemon/api/ollama.py": "created_at of a reply",
}
"""Files that read it, and why: to show a date, or to keep one where no other clock goes on."""


def reads(file: Path) -> bool:
    """Whether a file has one of those names, by its module or imported from it."""
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Attribute) and (
            ".".join(ast.unparse(node).split(".")[-2:]) in WALL
        ):
            return True
        if isinstance(node, ast.ImportFrom) and any(
            f"{node.module}.{name.name}" in WALL for name in node.names
        ):
            return True
    return False


def test_the_wall_clock_is_only_shown_or_kept() -> None:
    """Everything that waits, measures or forbids does it by a clock that never jumps."""
    files = [file for code in CODE for file in (ROOT / code).rglob("*.py")]
    assert {str(file.relative_to(ROOT)) for file in files if reads(file)} == set(SHOWN)


@pytest.mark.parametrize("code", ["import time\nx = time.time()", "from time import time as t"])
def test_every_spelling_is_found(tmp_path: Path, code: str) -> None:
    """And a clock that never jumps is none of them."""
    (tmp_path / "a.py").write_text(code)
    assert reads(tmp_path / "a.py")
    steady = code.replace("time.time()", "time.monotonic()").replace(
        "import time as", "import sleep as"
    )
    (tmp_path / "a.py").write_text(steady)
    assert not reads(tmp_path / "a.py")
