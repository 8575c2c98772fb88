"""All planted mistakes, package by package."""

from __future__ import annotations

from mutants.control import CONTROL
from mutants.doors import DOORS
from mutants.drafts import DRAFTS
from mutants.engine import ENGINE
from mutants.law import LAW
from mutants.text import TEXT

MUTANTS = (*LAW, *ENGINE, *DRAFTS, *CONTROL, *TEXT, *DOORS)
