"""Values as text: for HTML, for JSON, and for people."""

from __future__ import annotations

import html
import json
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

# What would move the cursor, colour, ring, break a line, or turn the direction of what follows; and
# halves of characters, which cannot be written.
COMMANDING = re.compile(
    r"[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
)
OPTION = re.compile(r"--[a-z][a-z-]{1,24}")
LONG = 40  # characters: such a text needs a wide column
LONG_COLUMN = " class='long'"
Cell = str | int | float | None


def escaped(words: str) -> str:
    """The text with what commands a terminal in Python's notation: it may come from anywhere."""
    return COMMANDING.sub(lambda found: found[0].encode("unicode_escape").decode(), words)


def text(value: object) -> str:
    """Escaped, for an element or an attribute."""
    proper = str(value).encode("utf-8", "backslashreplace").decode()  # names may be no proper text
    return html.escape(proper, quote=True)


def sentence(value: object) -> str:
    """Escaped, for an element; options in it are not broken at their hyphens."""
    return OPTION.sub(r"<span class='option'>\g<0></span>", text(value))


def as_json(value: Any) -> str:
    """JSON that can stand within a script element."""
    return json.dumps(finite(value), separators=(",", ":")).replace("<", "\\u003c")


def finite(value: Any) -> Any:
    """The value with null in place of NaN and infinities, for which JSON has no words."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: finite(item) for key, item in value.items()}
    return [finite(item) for item in value] if isinstance(value, list | tuple) else value


def read(value: Cell) -> str:
    """A cell as people read it."""
    if value is None:
        return ""
    if isinstance(value, bool | str):
        return str(value)
    return f"{value:,}" if isinstance(value, int) else f"{value:,.4g}"


def data_value(value: Cell) -> str:
    """What a cell is sorted by, where that is a number."""
    return f" data-value='{value}'" if isinstance(value, int | float) else ""


def column_class(values: Sequence[tuple[Cell, str]]) -> str:
    """The class of the cells of a column, by what stands in it."""
    if values and all(isinstance(value, int | float | None) for value, _ in values):
        return " class='number'"
    long = any(len(shown) > LONG for _, shown in values)
    return LONG_COLUMN if long else " class='text'"


def share(part: float, whole: float) -> str:
    """A part of a whole in percent, or how many times as much it is."""
    if not whole:
        return "-"
    times = part / whole
    if times >= 2:
        return f"{times:.1f} times"
    return f"{times:.0%}" if times >= 0.01 else f"{times:.2%}"


def between(values: Sequence[int]) -> str:
    """From the least to the most."""
    low, high = min(values), max(values)
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"


def plural(number: int, what: str) -> str:
    """A number of things."""
    return f"{number:,} {what}{'' if number == 1 else 's'}"
