"""The columns of the input that the output keeps beside the vectors: as records for JSON, as tables for Parquet."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

from redbatch.embed.readers import PARQUET, PARQUET_ROWS, InputFile, open_parquet, read_rows

if TYPE_CHECKING:
    import pyarrow as pa

ERROR = "error"
"""The column of the output that says why a row has no result."""


class ColumnsError(Exception):
    """These columns cannot be kept; the message says which and what to do."""


class ColumnChoice(NamedTuple):
    """The columns that the output may keep.

    `own` are the other columns of the output; `drops_text`: whether it keeps the text only if the user names it.
    """

    own: Sequence[str]
    drops_text: bool


def choose_columns(
    file: InputFile, present: Sequence[str], keep: Sequence[str] | None, choice: ColumnChoice
) -> tuple[str, ...]:
    """Returns the names of the columns to keep.

    Args:
        file: the input.
        present: all of its columns.
        keep: those that the user named; None: all, unless `choice` drops that of the text.
        choice: what the output has besides.

    Raises:
        ColumnsError: the input has no such column, or the output would have two of one name.
    """
    dropped = file.column if choice.drops_text else None
    names = tuple(name for name in present if name != dropped) if keep is None else tuple(dict.fromkeys(keep))
    others = ", ".join(present) or "none"
    if unknown := [name for name in names if name not in present]:
        raise ColumnsError(f"--keep: {file.name} has no column {unknown[0]!r}. Its columns: {others}")
    if clash := [name for name in names if name in (*choice.own, ERROR)]:
        raise ColumnsError(
            f"{file.name} has a column {clash[0]!r}, as the output has: "
            f"name the columns to keep with --keep. Its columns: {others}"
        )
    return names


class KeptColumns:
    """The kept columns of an input.

    Args:
        file: the input.
        names: of the columns.
    """

    def __init__(self, file: InputFile, names: Sequence[str]) -> None:
        self._file = file
        self._names = names

    def records(self) -> Iterator[dict[str, Any]]:
        """Yields the columns of each row; of a line of JSON only those that it has."""
        for row in read_rows(self._file, self._names):
            yield {name: row.columns[name] for name in self._names if name in row.columns}

    def tables(self) -> ColumnTables:
        """Returns the columns as tables. Raises ColumnsError: a column cannot be one of Parquet."""
        if self._file.format == PARQUET:
            return ParquetTables(self._file, self._names)
        return RecordTables(self.records(), self._infer_schema())

    def _infer_schema(self) -> pa.Schema:
        """Returns a schema that fits all values. Raises ColumnsError: the values of a column differ in type."""
        import pyarrow as pa

        fields = [pa.field(name, pa.null()) for name in self._names]
        records = self.records()
        while chunk := list(islice(records, PARQUET_ROWS)):
            fields = [_widen(field, [record.get(field.name) for record in chunk]) for field in fields]
        schema = pa.schema(fields)
        _check_schema(schema)
        return schema


class ColumnTables:
    """Columns of an input, which are taken a number of rows at a time.

    Args:
        schema: of the columns.
    """

    def __init__(self, schema: pa.Schema) -> None:
        self.schema = schema

    def take(self, num_rows: int) -> list[pa.ChunkedArray]:
        """Returns the columns of the next rows."""
        raise NotImplementedError


class RecordTables(ColumnTables):
    """Columns of records."""

    def __init__(self, records: Iterator[dict[str, Any]], schema: pa.Schema) -> None:
        super().__init__(schema)
        self._records = records

    def take(self, num_rows: int) -> list[pa.ChunkedArray]:
        """Returns the columns of the next records."""
        import pyarrow as pa

        columns: list[pa.ChunkedArray] = pa.Table.from_pylist(
            list(islice(self._records, num_rows)), schema=self.schema
        ).columns
        return columns


class ParquetTables(ColumnTables):
    """Columns of a Parquet file, in their own types."""

    def __init__(self, file: InputFile, names: Sequence[str]) -> None:
        source = open_parquet(file)
        import pyarrow as pa

        super().__init__(pa.schema([source.schema_arrow.field(name) for name in names]))
        self._batches = source.iter_batches(PARQUET_ROWS, columns=list(names))
        self._pending = self.schema.empty_table()

    def take(self, num_rows: int) -> list[pa.ChunkedArray]:
        """Returns the columns of the next rows."""
        import pyarrow as pa

        while self.schema.names and self._pending.num_rows < num_rows:
            batch = pa.Table.from_batches([next(self._batches)]).select(self.schema.names)
            self._pending = pa.concat_tables([self._pending, batch.cast(self.schema)])
        taken: list[pa.ChunkedArray] = self._pending.slice(0, num_rows).columns
        self._pending = self._pending.slice(num_rows)
        return taken


def _widen(field: pa.Field, values: Sequence[object]) -> pa.Field:
    """Returns the field with a type that fits these values too. Raises ColumnsError: there is none."""
    import pyarrow as pa

    try:
        widened = pa.schema([pa.field(field.name, pa.array(values).type)])
        return pa.unify_schemas([pa.schema([field]), widened], promote_options="permissive").field(0)
    except (pa.ArrowException, OverflowError, UnicodeEncodeError, TypeError) as error:
        raise _not_a_column(field.name, error) from None


def _check_schema(schema: pa.Schema) -> None:
    """Raises ColumnsError: Parquet has no such type, as an object without fields."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    for field in schema:
        try:
            pq.ParquetWriter(io.BytesIO(), pa.schema([field])).close()
        except pa.ArrowException as error:
            raise _not_a_column(field.name, error) from None


def _not_a_column(name: str, error: Exception) -> ColumnsError:
    return ColumnsError(
        f"the values of {name!r} cannot be a column of a .parquet file ({error}): "
        "name the columns to keep with --keep, or write .jsonl"
    )
