"""Tables in .parquet files, read by pyarrow."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pfnm.errors import PFNMError
from pfnm.formats import told
from pfnm.formats.delimited import as_texts, whole_where_all_are
from pfnm.formats.limits import DATA_BYTES, Allowance
from pfnm.networks.network import Array

INDEX = re.compile(r"__index_level_\d+__")  # how pandas names the numbers of its rows


@dataclass(frozen=True)
class ParquetTable:
    """A parquet file: its columns' names."""

    path: str
    names: tuple[str, ...]
    named: bool = True

    def read(
        self, inputs: Sequence[int], labels: Sequence[int]
    ) -> tuple[Array, list[NDArray[Any]]]:
        """The columns of numbers as (rows, columns), and those of labels one by one."""
        from pyarrow import parquet

        chosen = [self.names[place] for place in (*inputs, *labels)]
        try:
            file = parquet.ParquetFile(self.path)
            numbers = file.metadata.num_rows * len(chosen)
            Allowance(self.path, DATA_BYTES).take(
                f"{numbers:,} numbers", numbers * np.dtype(float).itemsize
            )
            table = file.read(columns=chosen)
        except PFNMError:
            raise
        except Exception as error:  # whatever pyarrow raises on a damaged file
            raise _unreadable(self.path, error) from None
        if table.num_rows == 0:
            raise PFNMError(f"{self.path}: there are no rows; give some")
        columns = {name: self._values(name, table.column(name)) for name in chosen}
        for place in inputs:
            name = self.names[place]
            if columns[name].dtype.kind not in "biuf":
                raise PFNMError(
                    f"{self.path}: column {name!r} holds {table.column(name).type}, expected "
                    f"numbers; leave it out or, if it is the label, say --label {name}"
                )
        values = [columns[self.names[place]].astype(float) for place in inputs]
        return np.column_stack(values), [columns[self.names[place]] for place in labels]

    def _values(self, name: str, column: Any) -> NDArray[Any]:
        """A column as numbers or texts, none of them missing."""
        import pyarrow as pa

        if pa.types.is_dictionary(column.type):
            column = column.cast(column.type.value_type)
        if pa.types.is_decimal(column.type):
            column = column.cast(pa.float64())
        if column.null_count:
            row = int(np.argmax(column.is_null().to_numpy())) + 1
            raise PFNMError(
                f"{self.path}: column {name!r} in row {row} is empty; fill it or leave the row out"
            )
        if pa.types.is_boolean(column.type):
            return np.array(column.to_pylist(), dtype=bool)
        if pa.types.is_integer(column.type):
            return np.asarray(column.to_numpy())
        if pa.types.is_floating(column.type):
            values = np.asarray(column.to_numpy(), dtype=float)
            if not np.isfinite(values).all():
                row = int(np.argmin(np.isfinite(values)))
                raise PFNMError(
                    f"{self.path}: column {name!r} in row {row + 1} is {values[row]}, expected a "
                    "finite number; fill it or leave the row out"
                )
            return whole_where_all_are(values)
        if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
            return as_texts(self.path, column.to_pylist())
        raise PFNMError(
            f"{self.path}: column {name!r} holds {column.type}, expected numbers or texts; convert "
            "it or leave it out"
        )


def open_parquet(path: str | Path) -> ParquetTable:
    """The table of a parquet file; the row numbers that pandas adds are none of its columns."""
    try:
        from pyarrow import parquet
    except ImportError:
        raise PFNMError(
            f"{path}: a .parquet file needs pyarrow, which is not installed; pip install "
            "'pfnm[tables]'"
        ) from None
    try:
        names = parquet.read_schema(path).names
    except Exception as error:  # whatever pyarrow raises on a damaged file
        raise _unreadable(str(path), error) from None
    return ParquetTable(str(path), tuple(name for name in names if not INDEX.fullmatch(name)))


def _unreadable(path: str, error: Exception) -> PFNMError:
    return PFNMError(f"{path}: not a readable .parquet file: {told(error)}; save it again")
