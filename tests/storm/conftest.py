"""Prints the sums of all fault programs after a long run."""

from __future__ import annotations

import pytest
from storm.records import RECORDS, SEED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the sums of all programs, where a storm was requested."""
    if terminalreporter.config.getoption("markexpr") == "storm":
        terminalreporter.section(f"storm, seed {SEED}")
        terminalreporter.write_line(RECORDS.report())
