"""Recognises files that hold secrets: by their names, and by keys and tokens in their text.

A draft shows nothing that the target does not say itself, but an index is a second copy of a file:
what holds a secret is left out of it altogether.
"""

from __future__ import annotations

import re
from fnmatch import fnmatchcase

_NAMES = (
    "*.env", "*.env.*", "env.local", "*.pem", "*.key", "*.p8", "*.p12", "*.pfx", "*.jks",
    "*.keystore", "*.kdbx", "*.gpg", "*.pgp", "*.asc", "*.ppk", "*.ovpn", "*.htpasswd", "*.netrc",
    "*_netrc", "id_rsa*", "id_dsa*", "id_ecdsa*", "id_ed25519*", "*.tfstate", "*.tfstate.*",
    "*.tfvars",
    "credentials", "credentials.*", "*_credentials.*", "*-credentials.*", "secret", "secrets",
    "secret.*", "secrets.*", "*.secret", "*.secrets", "token", "token.*", "*.token", "tokens.json",
    "passwords", "passwords.*", "passwd", "shadow", "service-account*.json", "kubeconfig*",
)  # fmt: skip
"""Names that programs give to files of keys, without regard to case. Names that begin with a dot
are left out anyway (`folders.py`)."""
_SOURCE = (".py", ".pyi", ".rs", ".go", ".c", ".h", ".cc", ".cpp", ".java", ".kt", ".js", ".ts")
"""Code about secrets is no secret: `token.py` of a parser is read, and its text is looked at."""

_KEYS = re.compile(
    r"-----BEGIN [A-Z ]{0,40}PRIVATE KEY"
    r"|\b(?:AKIA|ASIA)[0-9A-Z]{16}\b"
    r"|\bgh[pousr]_[0-9A-Za-z]{30,}|\bgithub_pat_[0-9A-Za-z_]{30,}|\bglpat-[0-9A-Za-z_-]{20,}"
    r"|\bhf_[0-9A-Za-z]{30,}|\bsk-[0-9A-Za-z_-]{20,}|\bxox[abprs]-[0-9A-Za-z-]{10,}"
    r"|\bAIza[0-9A-Za-z_-]{35}|\bnpm_[0-9A-Za-z]{36}|\bpypi-[0-9A-Za-z_-]{50,}"
    r"|\beyJ[0-9A-Za-z_-]{10,}\.eyJ[0-9A-Za-z_-]{10,}\.[0-9A-Za-z_-]{10,}"
    r"|://[^\s:/@'\"<>{}$%]{1,64}:[^\s/@'\"<>{}$%]{8,128}@"
)
"""Private keys, and tokens in the forms that GitHub, GitLab, AWS, Google, Hugging Face, OpenAI,
Slack, npm and PyPI give them; JSON web tokens; passwords in addresses."""
_ASSIGNED = re.compile(
    r"(?i)\b[\w-]{0,32}(?:secret|passw(?:or)?d|api[_-]?key|access[_-]?key|auth[_-]?token|"
    r"access[_-]?token)[\w-]{0,16}[\"']?[ \t]{0,4}[:=][ \t]{0,4}[\"']?([0-9A-Za-z+/=_.-]{20,200})"
)
"""A long value without blanks assigned to such a name; `_random` then decides."""


def by_name(name: str) -> bool:
    """Whether a file of this name is taken to hold secrets."""
    lower = name.lower()
    return not lower.endswith(_SOURCE) and any(fnmatchcase(lower, each) for each in _NAMES)


def in_text(text: str) -> bool:
    """Whether a text holds a key, a token or a password. Linear in its length."""
    if _KEYS.search(text):
        return True
    return any(_random(found[1]) for found in _ASSIGNED.finditer(text))


def _random(value: str) -> bool:
    """Whether a value looks random: digits among letters, as no name or path of words has them."""
    kinds = [any(map(test, value)) for test in (str.isdigit, str.islower, str.isupper)]
    words = re.fullmatch(r"[A-Za-z_]+\d{0,2}(?:[._-][A-Za-z_]+\d{0,2})*", value)
    return sum(kinds) > 1 and kinds[0] and not words
