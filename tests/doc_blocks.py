"""Commands and snippets of README and the docs, as they stand on their pages."""

import re
import shlex
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
BLOCK = re.compile(
    r"^(?:<!-- (?P<note>[^\n]*) -->\n)?^```(?P<language>\w*)\n(?P<text>.*?)^```$", re.M | re.S
)


@dataclass(frozen=True)
class Block:
    """What stands between two fences, and the comment before it."""

    language: str
    text: str
    note: str
    line: int


def blocks(page: Path) -> list[Block]:
    text = page.read_text()
    return [
        Block(
            match["language"], match["text"], match["note"] or "", text[: match.start()].count("\n")
        )
        for match in BLOCK.finditer(text)
    ]


def command_lines(text: str) -> list[str]:
    joined = text.replace("\\\n", " ")
    return [line for line in joined.splitlines() if shlex.split(line, comments=True)]
