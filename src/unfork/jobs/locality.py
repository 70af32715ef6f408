"""Owns the check that a cursor job is local to a block: no row depends on another block's rows.

A cursor job is right only if computing blocks one by one and computing them together give the same
rows. No program can decide that for every query or function, so what is checked is the form.

SQL: accepted is what keeps blocks apart by form: rows on their own, groups, windows and distinct
rows by block_number, joins on equal block numbers, joins of a declared lookup up to the row's own
block. Everything else is refused with a hint, also where it happens to be local; mode partition
computes such a query rightly. Three things stay with the author: aggregate functions that are not
Spark's own, views hidden behind an input's name, and a column of an input that is called
block_number (or number) and is not the block's.

Python: refused is what is written out in the transform's own code and mixes blocks: the same forms,
where their columns are written as texts. A function that builds its columns, or works outside of
the DataFrame API, is not seen through. It can still be caught by computing a span in two halves.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterable, Iterator, Mapping

from unfork.datasets.derivation import Lookup
from unfork.jobs.code import Piece
from unfork.jobs.sql import CLAUSES, WORDS, Finding, Query, Token, tokenized

#: The number of the block; `number` is its name in the dataset `blocks`.
NUMBER = ("block_number", "number")

AGGREGATES = frozenset(
    """any any_value approx_count_distinct approx_percentile approx_top_k array_agg avg bit_and
    bit_or bit_xor bitmap_construct_agg bitmap_or_agg bool_and bool_or collect_list collect_set corr
    count count_if count_min_sketch covar_pop covar_samp every first first_value grouping
    grouping_id histogram_numeric hll_sketch_agg hll_union_agg kurtosis last last_value listagg max
    max_by mean median min min_by mode percentile percentile_approx percentile_cont percentile_disc
    regr_avgx regr_avgy regr_count regr_intercept regr_r2 regr_slope regr_sxx regr_sxy regr_syy
    skewness some std stddev stddev_pop stddev_samp string_agg sum theta_sketch_agg theta_union_agg
    try_avg try_sum var_pop var_samp variance""".split()
)

#: Words that begin another join, or what comes after the condition of one.
JOIN_ENDS = CLAUSES | {"join", "inner", "left", "right", "full", "cross", "natural", "lateral"}

HINT = "use mode: partition"


def check_sql(text: str, lookups: Mapping[str, Lookup] | None = None) -> list[Finding]:
    """Where a query may let blocks depend on each other; `lookups` by the names it reads from."""
    query = Query(tokenized(text))
    parts = (_crossings, _windows, _aggregates, _renamings, _subqueries)
    found = {finding for part in parts for finding in part(query)}
    return sorted(found.union(_joins(query, lookups or {})))


def check_code(pieces: Iterable[Piece]) -> list[tuple[Piece, Finding]]:
    """Where the code of a transform lets blocks depend on each other."""
    found = []
    for piece in pieces:
        for node in ast.walk(piece.statement) if piece.statement is not None else ():
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                what = _method(node, node.func)
                if what is not None:
                    found.append((piece, Finding(node.lineno, f"{what}, or {HINT}")))
    return found


def _crossings(query: Query) -> Iterator[Finding]:
    """Clauses that mix blocks, unless block_number keeps them apart."""
    for index, token in query:
        word, following = query.word(index), query.word(index + 1)
        if word in ("limit", "offset"):
            yield Finding(token.line, f"{word.upper()} counts rows across blocks; {HINT}")
        elif word in ("intersect", "except", "minus") and query.mark(index - 1) != "*":
            yield Finding(token.line, f"{word.upper()} compares rows across blocks; {HINT}")
        elif word == "union" and following != "all":
            yield Finding(token.line, "UNION drops equal rows across blocks; UNION ALL does not")
        elif word in ("pivot", "rollup", "cube", "grouping"):
            yield Finding(token.line, f"{word.upper()} gathers rows across blocks; {HINT}")
        elif word == "group" and following == "by":
            if not _names_number(query.items(index + 2, CLAUSES)):
                yield Finding(token.line, f"GROUP BY must name block_number, or {HINT}")
        elif word == "distinct" and query.word(index - 1) == "select":
            if not _names_number(query.items(index + 1, CLAUSES | {"from"})):
                yield Finding(token.line, f"DISTINCT must include block_number, or {HINT}")


def _windows(query: Query) -> Iterator[Finding]:
    """Windows stay within a block: OVER (…), and WINDOW a AS (…), b AS (…)."""
    for index, token in query:
        opens = [index + 1] if query.word(index) == "over" else []
        if query.word(index) == "window" and query.name(index + 1):
            depth = token.depth
            opens = [
                at + 1
                for at in range(index + 2, len(query.tokens))
                if query.tokens[at].depth == depth and query.word(at) == "as"
            ]
        for bracket in opens:
            # OVER name: the WINDOW clause that defines it is looked at by itself.
            if query.mark(bracket) == "(" and not _is_partitioned(query, bracket):
                what = f"a window must be PARTITION BY block_number, or {HINT}"
                yield Finding(query.tokens[bracket].line, what)


def _is_partitioned(query: Query, bracket: int) -> bool:
    for index in range(bracket + 1, query.closing(bracket)):
        if query.word(index) == "partition" and query.word(index + 1) == "by":
            return _names_number(query.items(index + 2, ("order", "rows", "range")))
    return False


def _aggregates(query: Query) -> Iterator[Finding]:
    """A SELECT that aggregates without GROUP BY makes one row of all blocks."""
    grouped = {
        query.selects[index]
        for index, _ in query
        if query.word(index) == "group" and query.word(index + 1) == "by"
    }
    for index, token in query:
        word = query.word(index)
        is_call = query.mark(index + 1) == "(" and query.mark(index - 1) != "."
        is_list = query.word(index - 1) in ("like", "ilike", "rlike")  # LIKE ANY ('a', 'b')
        if word not in AGGREGATES or not is_call or is_list:
            continue
        after = query.closing(index + 1) + 1
        while query.word(after) == "filter" or query.word(after + 1) == "group":
            after = query.closing(after + 1 + (query.word(after) == "within")) + 1
        if query.word(after) != "over" and query.selects[index] not in grouped:
            yield Finding(token.line, f"`{word}` aggregates across blocks; {HINT}")


def _joins(query: Query, lookups: Mapping[str, Lookup]) -> Iterator[Finding]:
    """Joins pair rows of equal block number, or find what a lookup held up to the row's block."""
    for index, token in query:
        if query.word(index) == "join":
            if query.word(index + 1) == "lateral" and query.name(index + 2):
                continue  # A function of the row: explode and its like.
            is_open = query.word(index - 1) in ("cross", "natural")
            lookup = lookups.get(query.name(index + 1))
            if lookup is not None:
                sides = (query.word(index - 1), query.word(index - 2))
                is_open = is_open or "right" in sides or "full" in sides
                if is_open or not _looks_up(query, index, lookup):
                    what = f"a lookup must be joined ON its {lookup.column} = {lookup.by}"
                    yield Finding(token.line, f"{what} AND its block_number <= block_number")
            elif is_open or not _joins_blocks(query, index):
                what = "a join must be ON equal block_number or USING (block_number, …)"
                yield Finding(token.line, f"{what}; else {HINT}")
        elif query.separates_sources(index) and query.word(index + 1) != "lateral":
            yield Finding(token.line, "a list of tables joins all blocks; write JOIN … ON")


def _looks_up(query: Query, join: int, lookup: Lookup) -> bool:
    """Whether a JOIN's own condition finds what a lookup holds up to the row's block."""
    after = join + 2 + (query.word(join + 2) == "as")
    alias = query.name(after) or query.name(join + 1)
    after += bool(query.name(after))
    if query.word(after) != "on":
        return False
    parts = [[token.text for token in part] for part in _conjuncts(query, after + 1)]
    return any(_finds(part, alias, lookup) for part in parts) and any(
        _is_before(part, alias) for part in parts
    )


def _finds(part: list[str], alias: str, lookup: Lookup) -> bool:
    """Whether a condition is `alias.column = other.by`, either way round."""
    match part:
        case [left, ".", one, "=" | "==", right, ".", other] if left != right:
            wanted = (lookup.column.lower(), lookup.by.lower())
            return (left == alias and (one, other) == wanted) or (
                right == alias and (other, one) == wanted
            )
    return False


def _is_before(part: list[str], alias: str) -> bool:
    """Whether a condition is `alias.block_number <= other.block_number`, either way round."""
    match part:
        case [left, ".", one, ("<=" | ">=") as sign, right, ".", other]:
            earlier, later = (left, right) if sign == "<=" else (right, left)
            return earlier == alias and later != alias and {one, other} <= set(NUMBER)
    return False


def _joins_blocks(query: Query, join: int) -> bool:
    """Whether a JOIN's own condition makes the block numbers of both sides equal."""
    after = query.closing(join + 1) + 1 if query.mark(join + 1) == "(" else join + 2
    after += query.word(after) == "as"
    alias = query.name(after) or query.name(join + 1)
    after += bool(query.name(after))
    if query.word(after) == "using" and query.mark(after + 1) == "(":
        names = query.tokens[after + 2 : query.closing(after + 1)]
        return any(name.text == "block_number" for name in names)
    if query.word(after) != "on" or not alias:
        return False
    return any(_equals(part, alias) for part in _conjuncts(query, after + 1))


def _conjuncts(query: Query, start: int) -> Iterator[list[Token]]:
    """The parts of a condition that AND joins; none where it is more than such parts."""
    end = len(query.tokens)
    while query.mark(start) == "(":
        closed = query.closing(start)
        is_last = closed + 1 >= end or query.word(closed + 1) in JOIN_ENDS
        if not is_last and query.mark(closed + 1) not in (")", ";"):
            break
        start, end = start + 1, closed
    parts: list[list[Token]] = [[]]
    depth = query.tokens[start].depth if start < end else 0
    for index in range(start, end):
        token = query.tokens[index]
        word = query.word(index) if token.depth == depth else ""
        if token.depth < depth or word in JOIN_ENDS:
            break
        if word in ("or", "between", "case"):
            return  # Here AND is not what it looks like.
        if word == "and":
            parts.append([])
        else:
            parts[-1].append(token)
    yield from parts


def _equals(part: list[Token], alias: str) -> bool:
    """Whether a condition is `alias.block_number = other.block_number`, either way round."""
    match [token.text for token in part]:
        case [left, ".", one, "=" | "==", right, ".", other]:
            return alias in (left, right) and left != right and {one, other} <= set(NUMBER)
    return False


def _renamings(query: Query) -> Iterator[Finding]:
    """Nothing but a block's number is called block_number."""
    for index, token in query:
        if token.text in NUMBER and token.kind in ("word", "name") and _renames(query, index):
            yield Finding(token.line, f"`{token.text}` must be the block's number, nothing else")
    for index in range(1, len(query.tokens)):
        if query.mark(index) != "(" or not query.name(index - 1):
            continue
        after = query.closing(index) + 1
        is_alias = query.word(index - 2) == "as" or query.mark(index - 2) == ")"
        is_defined = query.word(after) == "as" and query.mark(after + 1) == "("
        names = {token.text for token in query.tokens[index:after]}
        if (is_alias or is_defined) and not names.isdisjoint(NUMBER):
            what = "a list of new column names may not hold block_number"
            yield Finding(query.tokens[index].line, what)


def _renames(query: Query, index: int) -> bool:
    """Whether a name that stands here renames something that is not the block's number."""
    value = index - 1 - (query.word(index - 1) == "as")
    if value < 0 or query.mark(index + 1) == "." or not _ends_value(query.tokens[value]):
        return False
    if query.mark(index - 1) == ".":
        return False
    before = value - 3 if query.mark(value - 1) == "." else value - 1
    begins = query.mark(before) == "," or query.word(before) in ("select", "distinct", "all")
    return not (query.tokens[value].text in NUMBER and begins)


def _ends_value(token: Token) -> bool:
    """Whether a value ends with this, so that a name that follows renames it."""
    if token.kind == "mark":
        return token.text in (")", "]")
    return token.kind != "word" or token.text not in WORDS or token.text in ("end", "null")


def _subqueries(query: Query) -> Iterator[Finding]:
    """A SELECT within an expression may see rows of every block."""
    for index, token in query:
        if query.word(index) not in ("select", "with") or query.mark(index - 1) != "(":
            continue
        before = index - 2
        while query.mark(before) == "(":
            before -= 1
        is_source = before < 0 or query.opens_source(before) or query.word(before) == "as"
        is_source = is_source or (query.word(before) == "all" and query.word(before - 1) == "union")
        if not is_source:
            what = f"a subquery in an expression sees all blocks; write a JOIN, or {HINT}"
            yield Finding(token.line, what)


def _names_number(items: list[list[Token]]) -> bool:
    """Whether one of the items is the plain block number, of any table and by any name."""
    for item in items:
        texts = [token.text for token in item]
        texts = texts[: texts.index("as")] if "as" in texts else texts
        match texts:
            case [column] | [_, ".", column] if column in NUMBER:
                return True
    return False


def _method(call: ast.Call, method: ast.Attribute) -> str | None:
    """What a call of the DataFrame API does to blocks, None where it keeps them apart."""
    named = [keyword.value for keyword in call.keywords if keyword.arg in ("on", "subset", "cols")]
    columns = _texts([*call.args, *named])
    match method.attr:
        case "limit" | "offset" | "tail" if len(call.args) == 1:
            return f"`{method.attr}` counts rows across blocks: leave it out"
        case "crossJoin":
            return "`crossJoin` pairs rows of all blocks: join on block_number"
        case "intersect" | "intersectAll" | "subtract" | "exceptAll" if len(call.args) == 1:
            return f"`{method.attr}` compares rows across blocks: join on block_number"
        case "distinct" if not call.args:
            return "`distinct` compares rows across blocks: dropDuplicates by block_number and more"
        case "rollup" | "cube":
            return f"`{method.attr}` gathers rows across blocks: group by block_number"
        case "groupBy" | "groupby" | "dropDuplicates" | "drop_duplicates" | "partitionBy":
            if columns is not None and not set(columns) & set(NUMBER):
                return f"`{method.attr}` must name block_number"
        case "orderBy" if isinstance(method.value, ast.Name) and method.value.id == "Window":
            return "a window must be partitioned by block_number"
        case "agg" if not _is_grouped(method.value):
            return "`agg` without groupBy makes one row of all blocks: group by block_number"
        case "join" if len(call.args) > 1 or named:
            on = _texts([*call.args[1:2], *named])
            if on is not None and not set(on) & set(NUMBER):
                return "`join` must be on block_number"
    return None


def _is_grouped(receiver: ast.expr) -> bool:
    """Whether `agg` is called on groups; a variable may hold groups, so it is let pass."""
    if not isinstance(receiver, ast.Call) or not isinstance(receiver.func, ast.Attribute):
        return True
    return receiver.func.attr not in ("select", "where", "filter", "withColumn", "join", "drop")


def _texts(nodes: Collection[ast.expr]) -> list[str] | None:
    """The columns that are written out (`"x"`, `col("x")`, `df["x"]`), None where one is not."""
    texts: list[str] = []
    for node in nodes:
        match node:
            case (
                ast.Constant(value=str(text))
                | ast.Subscript(slice=ast.Constant(value=str(text)))
                | ast.Call(func=ast.Attribute(attr="col"), args=[ast.Constant(value=str(text))])
                | ast.Call(func=ast.Name(id="col"), args=[ast.Constant(value=str(text))])
            ):
                texts.append(text)
            case ast.List(elts=inner) | ast.Tuple(elts=inner):
                found = _texts(inner)
                if found is None:
                    return None
                texts += found
            case _:
                return None
    return texts
