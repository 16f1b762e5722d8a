"""JSON and CSV in segments, parsed and written by Spark itself.

A batch goes over the Hadoop-compatible path where the session knows it; its files are then files to Spark. Else, and in
a stream, ``format("rolling")`` gives lines of text, and Spark's `from_json` or `from_csv` parses them. They give the
same rows as `spark.read`. Must not be here: a parser.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from rollingfs.spark import jar

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import StructField, StructType

JSON, CSV = "json", "csv"
ALSO_SPARKS = ("basepath",)
"""Options of the data source that Spark's own files have, too."""
FOR_INFERENCE = ("storage_options", "tiers", "compression", "partitioncolumns", "basepath")
"""Options of a stream that locate its segments: a look at their columns needs them."""
NOT_OF_LINES = {"multiline": "true", "linesep": None, "encoding": None, "charset": None}
"""Options that change where a line ends, each with the value that does; None: any but UTF-8."""
_BLANKS = "".join(map(chr, range(33)))
_LETTER = chr(len(_BLANKS))
"""The first character that is no blank."""
CORRUPT = "columnnameofcorruptrecord"
_LINE, _CLEAN, _LIST, _ROW, _ITEM, _BAD = "_line", "_clean", "_list", "_row", "_item", "_bad"
_MARK = "\ufeff"
_MALFORMED, _LETTERS_MAX = "{", 2**31 - 1


def read_json(spark: SparkSession, url: str, schema: StructType | str | None = None, **options: Any) -> DataFrame:
    """Read segments of JSON lines, as ``spark.read.json`` reads files.

    Parameters
    ----------
    spark : pyspark.sql.SparkSession
        Best with the settings of `configure`: then the Hadoop-compatible path reads, in all formats of Spark's options.
    url
        A segment, a folder or a pattern: ``s3://bucket/events``, ``rolling+s3://bucket/events``, ``/data/events``.
    schema
        The columns, as a `StructType` or DDL. None infers them, with a read of all lines.
    **options
        Options of ``spark.read.json`` and of ``format("rolling")``. An option of the latter reads by the data source.

    Raises
    ------
    ValueError
        An option needs files (`multiLine`, `lineSep`, `encoding`), and the session or the URL has no path for them.
    """
    return _batch(JSON, spark, url, schema, options)


def read_csv(spark: SparkSession, url: str, schema: StructType | str | None = None, **options: Any) -> DataFrame:
    """Read segments of CSV lines, as ``spark.read.csv`` reads files; see `read_json`."""
    return _batch(CSV, spark, url, schema, options)


def stream_json(spark: SparkSession, url: str, schema: StructType | str | None = None, **options: Any) -> DataFrame:
    """Follow segments of JSON lines; with the rows of ``spark.read.json``.

    Parameters
    ----------
    spark, url, schema, **options
        As of `read_json`. Without a schema, the present segments give the columns when the query is made.
    """
    return _stream(JSON, spark, url, schema, options)


def stream_csv(spark: SparkSession, url: str, schema: StructType | str | None = None, **options: Any) -> DataFrame:
    """Follow segments of CSV lines; see `stream_json`. With `header`, the first line of each segment is not a row."""
    return _stream(CSV, spark, url, schema, options)


def to_json(rows: DataFrame, *beside: str, **options: Any) -> DataFrame:
    """Return rows as lines of JSON, as ``rows.write.json`` writes them; then write them with ``format("rolling")``.

    Parameters
    ----------
    rows
        A batch or a stream.
    *beside
        Columns outside of the line, like the column of `segmentBy`.
    **options
        Options of ``write.json``.
    """
    return _lines("to_json", rows, beside, options)


def to_csv(rows: DataFrame, *beside: str, **options: Any) -> DataFrame:
    """Return rows as lines of CSV; see `to_json`.

    Raises
    ------
    ValueError
        Option `header` is given: an append has no first line.
    """
    if str(options.get("header", "false")).lower() != "false":
        raise ValueError("to_csv writes no header: an append cannot know whether its lines are the first of a segment")
    return _lines("to_csv", rows, beside, options)


def _lines(function: str, rows: DataFrame, beside: tuple[str, ...], options: Mapping[str, Any]) -> DataFrame:
    from pyspark.sql import functions

    columns = [_column(name) for name in rows.columns if name not in beside]
    value = getattr(functions, function)(functions.struct(*columns), _texts(options)).alias("value")
    return rows.select(*map(_column, beside), value)


def _batch(kind: str, spark: SparkSession, url: str, schema: Any, options: Mapping[str, Any]) -> DataFrame:
    ours, parsers = _parted(options)
    path = _hadoop_url(spark, url)
    if path is not None and not ours.keys() - set(ALSO_SPARKS):
        reader = spark.read.format(kind).options(**options)
        if schema is None:
            return reader.load(path)
        wanted, found = _struct(schema), reader.schema(schema).load(path)
        # Spark moves the columns of folders to the end
        return found.select(*map(_column, [*wanted.names, *(one for one in found.columns if one not in wanted.names)]))
    if schema is None:  # a header names the columns
        text = _text(kind, spark, "read", url, ours, {**parsers, "header": "false"})
        of_folders = {one.name: one for one in text.schema if one.name != _LINE}
        inferred = _inferred(kind, spark, text, parsers)
        schema = type(inferred)([_field(one, of_folders, spark) for one in inferred])
    return _parsed(kind, _text(kind, spark, "read", url, ours, parsers, schema), schema, parsers)


def _stream(kind: str, spark: SparkSession, url: str, schema: Any, options: Mapping[str, Any]) -> DataFrame:
    ours, parsers = _parted(options)
    if schema is None:
        where = {name: value for name, value in ours.items() if name in FOR_INFERENCE}
        schema = _batch(kind, spark, url, None, {**where, **parsers}).schema
    return _parsed(kind, _text(kind, spark, "readStream", url, ours, parsers, schema), schema, parsers)


def _struct(schema: Any) -> StructType:
    from pyspark.sql.types import StructType

    found: Any = StructType.fromDDL(schema) if isinstance(schema, str) else schema
    return found  # type: ignore[no-any-return]


def _field(field: StructField, others: Mapping[str, StructField], spark: SparkSession) -> StructField:
    """Return the field of others that a field stands for, by the rule of the session for names; else itself."""
    return others.get(_named(field.name, others, spark) or "", field)


def _named(name: str, others: Iterable[str], spark: SparkSession) -> str | None:
    """Return the name of a list that a name means, by the session's rule for case."""
    is_sensitive = str(spark.conf.get("spark.sql.caseSensitive")).lower() == "true"
    return next((one for one in others if one == name or (not is_sensitive and one.lower() == name.lower())), None)


def _parted(options: Mapping[str, Any]) -> tuple[dict[str, str], dict[str, str]]:
    """Return the options of the data source and of Spark's parser.

    Names are in lower case.
    """
    from rollingfs.spark.source.options import READING

    lower = {name.lower(): value for name, value in _texts(options).items()}
    ours = {name: value for name, value in lower.items() if name in READING}
    return ours, {name: value for name, value in lower.items() if name not in ours}


def _texts(options: Mapping[str, Any]) -> dict[str, str]:
    texts = {name: value for name, value in options.items() if value is not None}
    return {name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in texts.items()}


def _hadoop_url(spark: SparkSession, url: str) -> str | None:
    """Return the URL by which the session opens the segments as files; None where it cannot."""
    from rollingfs.spark.source.options import parse_url

    protocol, path = parse_url(url)
    scheme = f"rolling+{protocol}"
    if scheme not in jar.SCHEMES and url.startswith(tuple(f"{one}://" for one in jar.MORE_SCHEMES)):
        return url  # whether its connector is there, the user knows who writes this scheme
    if scheme not in jar.SCHEMES or not spark.conf.get(f"spark.hadoop.fs.{scheme}.impl", ""):
        return None
    return f"{scheme}://{path.removeprefix(f'{protocol}://')}"


def _text(
    kind: str,
    spark: SparkSession,
    way: str,
    url: str,
    ours: Mapping[str, str],
    parsers: Mapping[str, str],
    schema: Any = None,
) -> DataFrame:
    """Return the lines, in the column `_LINE`, with the columns that the data source gives next to them.

    Parameters
    ----------
    way
        The session's reader: ``"read"`` or ``"readStream"``.
    schema
        The columns that a user wants: columns of folders have these types.
    """
    from pyspark.sql import functions

    for name, value in NOT_OF_LINES.items():
        given = parsers.get(name)
        if given is not None and (given == value if value else given.upper() not in ("UTF-8", "UTF8")):
            raise ValueError(
                f"option {name} is {given!r}, and {url} is read by lines of UTF-8, because this is a stream, an option "
                "of format('rolling') is given, or the session does not know the Hadoop-compatible path: read a batch "
                "in a session that was made with rollingfs.spark.configure(builder), with Spark's own options"
            )
    has_header = kind == CSV and parsers.get("header") == "true"
    more = {"includemetadata": "true"} if has_header else {}
    options = {**ours, **more}
    text: DataFrame = getattr(spark, way).format("rolling").options(**options).load(url)
    wanted = {one.name: one for one in _struct(schema)} if schema is not None else {}
    kinds = {one.name: _field(one, wanted, spark).dataType for one in text.schema if one.name != "value"}
    if any(kinds[one.name] != one.dataType for one in text.schema if one.name in kinds):
        # the type that was inferred of a folder's name may have lost a part of it: 01 is the number 1
        typed = type(text.schema)()
        for one in text.schema:
            typed = typed.add(one.name, kinds.get(one.name, one.dataType))
        text = getattr(spark, way).format("rolling").options(**options).schema(typed).load(url)
    text = text.withColumnRenamed("value", _LINE)
    if has_header:
        text = text.where("_offset > 0")
        if ours.get("includemetadata") != "true":
            text = text.drop("_offset", "_segment", "_commit_time")
    if kind == CSV:
        line = functions.col(_LINE)
        # to look for a first letter is cheap, and almost all lines have one
        text = text.where((line >= _LETTER) | (functions.trim(line, functions.lit(_BLANKS)) != ""))
        if parsers.get("comment"):
            text = text.where(~functions.startswith(functions.col(_LINE), functions.lit(parsers["comment"])))
    return text


def _inferred(kind: str, spark: SparkSession, text: DataFrame, parsers: Mapping[str, str]) -> StructType:
    """Return the columns of some lines, as Spark infers them."""
    import pyspark

    lines: Any = text.select(_LINE)
    if pyspark.__version__ < "4.2":
        lines = lines.rdd.map(lambda row: row[0])
    found: StructType = getattr(spark.read.options(**parsers), kind)(lines).schema
    return found


def _parsed(kind: str, text: DataFrame, schema: Any, parsers: Mapping[str, str]) -> DataFrame:
    """Return the rows of lines, in the columns of a schema, with the other columns of the text after them.

    Spark's functions have no mode DROPMALFORMED. So a column for the malformed text marks malformed rows.
    """
    from pyspark.sql import functions
    from pyspark.sql.types import StringType, StructType

    wanted = _struct(schema)
    corrupt = str(parsers.get(CORRUPT) or text.sparkSession.conf.get("spark.sql.columnNameOfCorruptRecord"))
    mode = parsers.get("mode", "").upper()
    options = {**parsers, CORRUPT: corrupt, "mode": mode if mode == "FAILFAST" else "PERMISSIVE"}
    others = [name for name in text.columns if name != _LINE]
    beside = {one.name: name for one in wanted if (name := _named(one.name, others, text.sparkSession)) is not None}
    inside = StructType([field for field in wanted if field.name not in (*beside, corrupt)])
    whole = StructType([*inside, *StructType().add(corrupt, StringType())])
    if kind == CSV:
        ddl = ", ".join(f"{_quoted(field.name)} {field.dataType.simpleString()}" for field in whole)
        # Spark would parse a line again for a filter of the rows, and moves none below `explode`
        found = text.withColumn(_ROW, functions.explode(functions.array(functions.from_csv(_LINE, ddl, options))))
        cell = functions.col(_ROW).__getitem__
    else:
        found, cell = _objects(text, inside, whole, corrupt, options)
    if mode == "DROPMALFORMED":
        found = found.where(cell(corrupt).isNull())

    def column(field: Any) -> Column:
        if field.name in beside:
            return _column(beside[field.name]).cast(field.dataType)
        if field.name == corrupt:
            return functions.when(cell(corrupt).isNotNull(), functions.col(_LINE))
        return cell(field.name)

    columns = [column(field).alias(field.name) for field in wanted]
    return found.select(*columns, *(_column(name) for name in others if name not in beside.values()))


def _objects(
    text: DataFrame, inside: StructType, whole: StructType, corrupt: str, options: Mapping[str, str]
) -> tuple[DataFrame, Callable[[str], Column]]:
    """Return the rows of lines, and a function from a name to a column.

    A line has one row; a list of objects has several; a blank line has no row. As for files, a byte order mark before a
    line is dropped, and a line that is not UTF-8 is malformed.

    Each line is parsed once: Spark would parse it again for each filter that it moves below a parser, and moves no
    filter below `explode_outer`. Almost all lines are no lists, so the parser of lists is separate from the parser of a
    line.
    """
    from pyspark.sql import functions
    from pyspark.sql.types import ArrayType, StringType, StructType

    raw, line, listed, row, item = map(functions.col, (_LINE, _CLEAN, _LIST, _ROW, _ITEM))
    clean = (
        functions.when(~functions.is_valid_utf8(raw), _MALFORMED)
        .when(functions.startswith(raw, functions.lit(_MARK)), functions.substring(raw, 2, _LETTERS_MAX))
        .otherwise(raw)
    )
    begins = functions.startswith(functions.ltrim(line, functions.lit(" \t")), functions.lit("["))
    items = functions.from_json(line, ArrayType(inside), options)
    # a list with a null in it is malformed, and is a row as other malformed lines are
    is_list = ~functions.startswith(line, functions.lit("{")) & begins & ~functions.exists(items, functions.isnull)
    # only an object tells whether something in it is malformed
    wrapped = functions.concat(functions.lit('{"list":'), line, functions.lit("}"))
    of_list = StructType().add("list", ArrayType(inside)).add(corrupt, StringType())
    parsed = (
        text.withColumn(_CLEAN, clean)
        .withColumn(_LIST, functions.when(is_list, items))
        .withColumn(_ROW, functions.when(listed.isNull(), functions.from_json(line, whole, options)))
        .withColumn(_BAD, functions.when(listed.isNotNull(), functions.from_json(wrapped, of_list, options)[corrupt]))
    )
    found = parsed.withColumn(_ITEM, functions.explode_outer(listed)).where(item.isNotNull() | row.isNotNull())

    def cell(name: str) -> Column:
        of_item = functions.col(_BAD) if name == corrupt else item[name]
        return functions.when(item.isNotNull(), of_item).otherwise(row[name])

    return found, cell


def _column(name: str) -> Column:
    from pyspark.sql import functions

    return functions.col(_quoted(name))


def _quoted(name: str) -> str:
    return f"`{name.replace('`', '``')}`"
