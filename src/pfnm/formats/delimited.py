"""Tables as text: .csv and .tsv files."""

from __future__ import annotations

import csv
import re
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pfnm.errors import PFNMError
from pfnm.formats import told
from pfnm.formats.limits import DATA_BYTES, Allowance
from pfnm.networks.network import Array
from pfnm.networks.targets import TRUTH, WHOLE

DELIMITERS = "\t;,"  # in this order: a comma may be a decimal one, a tab is never anything else
SAMPLE = 20  # lines by which the delimiter and a row of names are told
ROWS = 4096  # read at a time, for texts take ten times the room of numbers
DECIMAL_COMMA = re.compile(r"[+-]?\d*,\d+([eE][+-]?\d+)?")
DECIMAL_POINT = re.compile(r"[+-]?\d*\.\d+([eE][+-]?\d+)?")
LARGEST_WHOLE = 2**53  # above, floating point leaves whole numbers out
LEADING_ZEROS = re.compile(r"[+-]?0\d+")  # a code, not a number: 007


@dataclass(frozen=True)
class TextTable:
    """A text file of rows: its columns' names (positions from 1 where it has none).

    commas: whether its numbers have decimal commas.
    """

    path: str
    delimiter: str
    names: tuple[str, ...]
    named: bool
    commas: bool = False

    def read(
        self, inputs: Sequence[int], labels: Sequence[int]
    ) -> tuple[Array, list[NDArray[Any]]]:
        """The columns of numbers as (rows, columns), and those of labels one by one."""
        blocks: list[Array] = []
        texts: list[list[str]] = [[] for _ in labels]
        with opened(self.path) as file:
            rows = records(self.path, file, self.delimiter)
            if self.named:
                next(rows)
            while block := list(islice(rows, ROWS)):
                for line, row in block:
                    if len(row) != len(self.names):
                        raise PFNMError(
                            f"{self.path}: line {line} has {len(row)} cells, expected "
                            f"{len(self.names)} as in the first; correct it"
                        )
                blocks.append(self._numbers(block, inputs))
                for column, text in zip(labels, texts, strict=True):
                    cells = [row[column].strip() for _, row in block]
                    text.extend(map(with_point, cells) if self.commas else cells)
                    self._refuse_empty(block, column)
        if not blocks:
            raise PFNMError(f"{self.path}: there are no rows below the names; give some")
        return np.concatenate(blocks), [as_labels(self.path, text) for text in texts]

    def _numbers(self, block: list[tuple[int, list[str]]], columns: Sequence[int]) -> Array:
        try:
            if self.commas:
                raise ValueError
            values = np.array([[row[c] for c in columns] for _, row in block], dtype=float)
        except ValueError:  # some cell is none, or is true or false, or has a decimal comma
            values = np.array(
                [[self._number(line, row, c) for c in columns] for line, row in block]
            )
        bad = np.argwhere(~np.isfinite(values))
        if bad.size:
            line, row = block[bad[0, 0]]
            column = columns[bad[0, 1]]
            raise PFNMError(
                f"{self.path}: {self._place(line, column)} is {row[column].strip()!r}, expected a "
                "finite number; fill it or leave the row out"
            )
        return values.reshape(len(block), len(columns))

    def _number(self, line: int, row: list[str], column: int) -> float:
        cell = row[column].strip()
        try:
            if not (self.commas and DECIMAL_POINT.fullmatch(cell)):
                cell = with_point(cell) if self.commas else cell
                return float(TRUTH.get(cell.lower(), cell))
        except ValueError:
            self._refuse_empty([(line, row)], column)
        way_out = f"leave the column out or, if it is the label, say --label {self.names[column]}"
        if DECIMAL_COMMA.fullmatch(cell) or (self.commas and DECIMAL_POINT.fullmatch(cell)):
            way_out = "write all numbers with a decimal point"
        raise PFNMError(
            f"{self.path}: {self._place(line, column)} is {cell!r}, which is no number; {way_out}"
        )

    def _refuse_empty(self, block: list[tuple[int, list[str]]], column: int) -> None:
        for line, row in block:
            if not row[column].strip():
                raise PFNMError(
                    f"{self.path}: {self._place(line, column)} is empty; fill it or leave the row "
                    "out"
                )

    def _place(self, line: int, column: int) -> str:
        name = self.names[column]
        return f"column {repr(name) if self.named else name} in line {line}"


def open_text(path: str | Path, expected: Collection[str]) -> TextTable:
    """The table of a text file; `expected` names help to tell a row of names from one of data."""
    file_name = str(path)
    with opened(file_name) as file:
        sample = list(islice((line for line in file if line.strip()), SAMPLE))
    delimiter = delimiter_of(sample)
    with opened(file_name) as file:
        rows = [row for _, row in islice(records(file_name, file, delimiter), SAMPLE)]
    if not rows:
        raise PFNMError(f"{file_name}: there is nothing but blank lines; save it again")
    commas = has_commas(delimiter, rows)
    if commas:
        rows = [[with_point(cell) for cell in row] for row in rows]
    cells = [cell.strip() for cell in rows[0]]
    named = are_names(cells, rows[1:], expected)
    names = cells if named else [str(place) for place in range(1, len(cells) + 1)]
    return TextTable(file_name, delimiter, tuple(names), named, commas)


def has_commas(delimiter: str, rows: Sequence[Sequence[str]]) -> bool:
    """Whether numbers have decimal commas: some of these do, and none has a decimal point."""
    cells = [cell.strip() for row in rows for cell in row]
    return (
        delimiter != ","
        and any(map(DECIMAL_COMMA.fullmatch, cells))
        and not any(map(DECIMAL_POINT.fullmatch, cells))
    )


def with_point(cell: str) -> str:
    """A number with a decimal comma written with a point; any other cell as it is."""
    return cell.replace(",", ".") if DECIMAL_COMMA.fullmatch(cell.strip()) else cell


@contextmanager
def opened(path: str) -> Iterator[Any]:
    """The file as text, or one line that says why not."""
    try:
        with open(path, newline="", encoding="utf-8-sig") as file:
            yield file
    except UnicodeDecodeError:
        raise PFNMError(f"{path}: it is no text in UTF-8; save it as CSV UTF-8") from None
    except (OSError, csv.Error) as error:
        raise PFNMError(f"{path}: cannot be read: {told(error)}; save it again") from None


def records(path: str, file: Any, delimiter: str) -> Iterator[tuple[int, list[str]]]:
    """The rows that are not blank, each with the line it ends in."""
    reader = csv.reader(file, delimiter=delimiter, skipinitialspace=True, strict=True)
    try:
        for row in reader:
            if any(map(str.strip, row)):
                yield reader.line_num, row
    except csv.Error as error:
        raise PFNMError(
            f"{path}: line {reader.line_num} cannot be read ({error}); correct it"
        ) from None


def widths_by(delimiter: str, lines: Sequence[str]) -> list[int]:
    """The number of cells of each line; none where a cell would be longer than csv allows."""
    try:
        return [len(row) for row in csv.reader(lines, delimiter=delimiter)]
    except csv.Error:
        return []


def delimiter_of(lines: Sequence[str]) -> str:
    """The delimiter that cuts all these lines into equally many cells, or else the first most."""
    widths = {d: widths_by(d, lines) for d in DELIMITERS}
    for delimiter, counts in widths.items():
        if counts and min(counts) == max(counts) > 1:
            return delimiter
    return max(reversed(DELIMITERS), key=lambda d: widths[d][0] if widths[d] else 0)


def are_names(
    first: Sequence[str], rows: Sequence[Sequence[str]], expected: Collection[str]
) -> bool:
    """Whether the first row names the columns; `rows` are some that follow.

    It does so if none of its cells is a number. If only some are none, it may as well be an example
    with a label of text; it holds names then if below a text there are only numbers, or if the
    others are counted up (as pandas names columns) and the text is a name we expect.
    """
    texts = [place for place, cell in enumerate(first) if cell and not is_number(cell)]
    numbers = [cell for cell in first if is_number(cell)]
    if not numbers:
        return True
    below = [[row[place] for row in rows if place < len(row)] for place in texts]
    if any(cells and all(map(is_number, cells)) for cells in below):
        return True
    counted = all(number.isdecimal() for number in numbers) and [
        int(number) - int(numbers[0]) for number in numbers
    ] == list(range(len(numbers)))
    return counted and any(first[place].lower() in expected for place in texts)


def is_number(cell: str) -> bool:
    """Whether a cell holds a number, or true or false."""
    try:
        float(TRUTH.get(cell.strip().lower(), cell))
    except ValueError:
        return False
    return True


def as_labels(path: str, texts: Sequence[str]) -> NDArray[Any]:
    """A column of labels: whole numbers where all are, else numbers where all are, else texts."""
    if all(map(WHOLE.fullmatch, texts)):
        return np.array([int(text.split(".")[0]) for text in texts])
    if not any(map(LEADING_ZEROS.fullmatch, texts)):
        try:
            values = np.array([float(text) for text in texts])
        except ValueError:
            return as_texts(path, texts)
        if np.isfinite(values).all():
            return whole_where_all_are(values)
    return as_texts(path, texts)


def as_texts(path: str, texts: Sequence[str]) -> NDArray[Any]:
    """Texts as an array, in which each takes the room of the longest."""
    longest = max(map(len, texts), default=0)
    room = longest * len(texts) * np.dtype("U1").itemsize
    Allowance(path, DATA_BYTES).take(f"a label of {longest:,} characters", room)
    return np.array(texts)


def whole_where_all_are(values: Array) -> NDArray[Any]:
    """Finite numbers as whole ones if each of them is whole."""
    if (np.abs(values) < LARGEST_WHOLE).all() and (values == np.floor(values)).all():
        return values.astype(int)
    return values
