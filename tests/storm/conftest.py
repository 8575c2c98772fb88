"""A long storm ends with what was run."""

from __future__ import annotations

import pytest
from storm.ledger import LEDGER, SEED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """The sums of all programs, where a storm was asked for."""
    if terminalreporter.config.getoption("markexpr") == "storm":
        terminalreporter.section(f"storm, seed {SEED}")
        terminalreporter.write_line(LEDGER.report())
