"""Reads the numbers of a header's architecture, and refuses what is no such number."""

from __future__ import annotations

from localspec.catalog.reader import BOOL, INT32, UINT32, Array, Parsed, refuse

MAX_NUMBER = (1 << 31) - 1  # in places the loader keeps sizes in signed 32-bit numbers


def key_of(parsed: Parsed, name: str) -> str:
    """The whole key of `name`, such as "llama.block_count"."""
    return f"{parsed.metadata['general.architecture']}.{name}"


def number(parsed: Parsed, name: str, default: int | None = None) -> int:
    """The whole number `architecture.name`. Raises BadGGUF if it is missing and has no default."""
    key = key_of(parsed, name)
    value = parsed.metadata.get(key, default)
    if value is None:
        refuse(f"Key {key} is missing.")
    if parsed.kinds.get(key, UINT32) != UINT32 or not isinstance(value, int):
        refuse(f"Key {key} is not an unsigned 32-bit number.")
    if value > MAX_NUMBER:
        refuse(f"Key {key} is {value}, which is absurd.")
    return value


def numbers(parsed: Parsed, name: str, default: int) -> tuple[int, ...]:
    """One number per layer, from a single number or from an array of them."""
    key = key_of(parsed, name)
    layers = number(parsed, "block_count")
    value = parsed.metadata.get(key)
    if not isinstance(value, Array):
        return (number(parsed, name, default),) * layers
    if value.element_type not in {UINT32, INT32, BOOL}:  # what llama.cpp's get_arr takes
        refuse(f"Key {key} is not an array of 32-bit numbers.")
    if len(value) != layers:
        refuse(f"Key {key} has {len(value)} entries for {layers} layers.")
    found = value.numbers()
    if not all(0 <= each <= MAX_NUMBER for each in found):
        refuse(f"Key {key} holds an absurd number.")
    return found
