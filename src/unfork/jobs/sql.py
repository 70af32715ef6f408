"""Owns the reading of a SQL job: its words, its normal form and the tables it reads.

This is no parser of Spark's SQL, Spark is. It knows words, quotes, comments and brackets. That is
enough for a normal form that ignores layout, for the tables that are read, and for the check of
block-locality (locality.py), without starting Spark.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass

TOKEN = re.compile(
    r"""
      (?P<comment>--[^\n]*|/\*.*?(?:\*/|\Z))
    | (?P<text>'(?:[^'\\]|\\.|'')*'|"(?:[^"\\]|\\.|"")*")
    | (?P<quoted>`(?:[^`]|``)*`)
    | (?P<word>[^\W\d]\w*)
    | (?P<number>\d[\w.]*)
    | (?P<mark>\|\||<=>|<=|>=|<>|!=|==|::|->|=>|\|>|\S)
    """,
    re.VERBOSE | re.DOTALL,
)

#: Words of the language, which are no names.
WORDS = frozenset(
    """select from where group by having order limit offset union all distinct intersect except
    minus join inner left right full outer cross semi anti natural on using as and or not in is null
    between like rlike ilike case when then else end over partition rows range with lateral view
    values qualify window cluster distribute sort exists any some filter within interval cast asc
    desc nulls first last recursive tablesample pivot unpivot cube rollup grouping sets
    div escape""".split()
)

#: Words that end what FROM lists.
CLAUSES = frozenset(
    """where group having order limit offset union intersect except minus qualify window cluster
    distribute sort on using""".split()
)

#: Functions whose answer differs from run to run, so that computing twice is not computing once.
UNSTEADY = frozenset(
    """current_catalog current_database current_date current_schema current_time current_timestamp
    current_user curdate input_file_block_length input_file_block_start input_file_name
    localtimestamp monotonically_increasing_id now rand randn random randstr session_user shuffle
    spark_partition_id uniform user uuid""".split()
)

#: Those of them that need no brackets.
BARE = frozenset({"current_date", "current_time", "current_timestamp", "current_user"})

#: What would write, by the word that follows.
WRITES = {"insert": ("into", "overwrite"), "merge": ("into",), "delete": ("from",)}


@dataclass(frozen=True, slots=True)
class Token:
    """One word or sign of a query."""

    #: As it is compared: lower case, unless it is a text.
    text: str
    #: word, name (quoted), text, number or mark.
    kind: str
    #: The line it stands on, from 1.
    line: int
    #: How many brackets are open around it.
    depth: int


@dataclass(frozen=True, slots=True, order=True)
class Finding:
    """Something that is wrong with a query."""

    #: The line it stands on, from 1.
    line: int
    what: str


def normalized(text: str) -> str:
    """The query without comments and layout; words in lower case, texts as they are."""
    tokens = tokenized(text)
    while tokens and tokens[-1].text == ";":
        tokens = tokens[:-1]
    return " ".join(token.text for token in tokens)


def tokenized(text: str) -> list[Token]:
    """The words and signs of a query, comments left out."""
    tokens: list[Token] = []
    depth = 0
    for match in TOKEN.finditer(text):
        kind, word = match.lastgroup or "mark", match.group()
        if kind == "comment":
            continue
        if kind == "word":
            word = word.lower()
        elif kind == "quoted":
            # A quoted name is a name all the same; Spark does not tell their case apart.
            word, kind = word[1:-1].replace("``", "`").lower(), "name"
        depth -= word == ")" and kind == "mark"
        tokens.append(Token(word, kind, text.count("\n", 0, match.start()) + 1, depth))
        depth += word == "(" and kind == "mark"
    return tokens


def check(text: str, inputs: Collection[str]) -> list[Finding]:
    """What is wrong with a query in every mode: it must be one steady SELECT over its inputs."""
    query = Query(tokenized(text))
    known = {name.lower() for name in inputs}
    return sorted([*_shape(query), *_unsteady(query), *_strangers(query, known)])


class Query:
    """A query as a list of words, with the ways to look around in it."""

    def __init__(self, tokens: list[Token]) -> None:
        self.tokens = tokens
        #: By position: the position of the SELECT that a word belongs to, -1 outside of any.
        self.selects = self._select_of_each()

    def __iter__(self) -> Iterator[tuple[int, Token]]:
        return iter(enumerate(self.tokens))

    def word(self, index: int) -> str:
        """The word here, empty where there is something else or nothing."""
        if 0 <= index < len(self.tokens) and self.tokens[index].kind == "word":
            return self.tokens[index].text
        return ""

    def mark(self, index: int) -> str:
        """The sign here, empty where there is something else or nothing."""
        if 0 <= index < len(self.tokens) and self.tokens[index].kind == "mark":
            return self.tokens[index].text
        return ""

    def name(self, index: int) -> str:
        """The name of a table, column or function here, empty where there is none."""
        if not 0 <= index < len(self.tokens):
            return ""
        token = self.tokens[index]
        is_name = token.kind == "name" or (token.kind == "word" and token.text not in WORDS)
        return token.text if is_name else ""

    def closing(self, index: int) -> int:
        """The position of the bracket that closes the one here, or the end."""
        depth = self.tokens[index].depth if index < len(self.tokens) else 0
        for at in range(index + 1, len(self.tokens)):
            if self.tokens[at].depth == depth and self.mark(at) == ")":
                return at
        return len(self.tokens)

    def items(self, start: int, ends: Collection[str]) -> list[list[Token]]:
        """What a list with commas names, up to a word that ends it or the bracket around it."""
        items: list[list[Token]] = [[]]
        depth = self.tokens[start].depth if start < len(self.tokens) else 0
        for index in range(start, len(self.tokens)):
            token = self.tokens[index]
            if token.depth < depth or (token.depth == depth and self.word(index) in ends):
                break
            if token.depth == depth and self.mark(index) == ",":
                items.append([])
            elif self.mark(index) != ";":
                items[-1].append(token)
        return items

    def opens_source(self, index: int) -> bool:
        """Whether a table or a subquery of FROM follows this word."""
        if self.word(index) == "from":
            # extract(x FROM y), trim(x FROM y) and IS DISTINCT FROM are no sources.
            select = self.selects[index]
            is_clause = select >= 0 and self.tokens[select].depth == self.tokens[index].depth
            return is_clause and self.word(index - 1) != "distinct"
        return self.word(index) == "join" or self.separates_sources(index)

    def separates_sources(self, index: int) -> bool:
        """Whether a comma stands between two sources of FROM."""
        if self.mark(index) != ",":
            return False
        depth = self.tokens[index].depth
        for before in range(index - 1, -1, -1):
            if self.tokens[before].depth < depth:
                return False
            if self.tokens[before].depth == depth:
                word = self.word(before)
                if word == "from":
                    return self.opens_source(before)
                if word in CLAUSES or word in ("select", "by"):
                    return False
        return False

    def tables(self) -> Iterator[int]:
        """The positions of the names that stand in FROM and JOIN."""
        for index in range(len(self.tokens)):
            if self.opens_source(index):
                found = index + 1 + (self.word(index + 1) == "lateral")
                if self.name(found) and self.mark(found + 1) != "(":
                    yield found

    def defined(self) -> Iterator[int]:
        """The positions of the names that WITH defines."""
        for index in range(len(self.tokens)):
            after = index + 1
            if self.mark(after) == "(":
                after = self.closing(after) + 1
            is_defined = self.word(after) == "as" and self.mark(after + 1) == "("
            begins = self.word(after + 2) in ("select", "with") or self.mark(after + 2) == "("
            if self.name(index) and is_defined and begins:
                yield index

    def _select_of_each(self) -> list[int]:
        owners: list[int] = []
        open_: list[tuple[int, int]] = []
        for index, token in enumerate(self.tokens):
            while open_ and token.depth < open_[-1][1]:
                open_.pop()
            if self.word(index) == "select":
                if open_ and open_[-1][1] == token.depth:
                    open_.pop()
                open_.append((index, token.depth))
            owners.append(open_[-1][0] if open_ else -1)
        return owners


def _shape(query: Query) -> Iterator[Finding]:
    """It is one SELECT."""
    if not query.tokens:
        yield Finding(1, "the file holds no query")
        return
    first = query.tokens[0]
    if first.text not in ("select", "with", "("):
        yield Finding(first.line, f"a job's SQL is one SELECT; it begins with `{first.text}`")
    for index, token in query:
        if query.word(index + 1) in WRITES.get(query.word(index), ()):
            yield Finding(token.line, f"a job's SQL is one SELECT; {token.text.upper()} writes")
        if query.mark(index) == ";" and any(rest.text != ";" for rest in query.tokens[index:]):
            yield Finding(token.line, "a job's SQL is one SELECT; there is more after `;`")
            return
        if query.mark(index) == "|>":
            yield Finding(token.line, "pipes (`|>`) are not supported; write a SELECT")
            return


def _unsteady(query: Query) -> Iterator[Finding]:
    """It gives the same rows whenever it is computed."""
    for index, token in query:
        word = query.word(index)
        if word == "tablesample":
            yield Finding(token.line, "TABLESAMPLE gives other rows in every run")
        if word not in UNSTEADY or query.mark(index - 1) == ".":
            continue
        if query.mark(index + 1) == "(" or (word in BARE and query.mark(index + 1) != "."):
            yield Finding(token.line, f"`{word}` gives another answer in every run")


def _strangers(query: Query, inputs: Collection[str]) -> Iterator[Finding]:
    """It reads nothing but its inputs."""
    own = {query.tokens[index].text for index in query.defined()}
    for index in query.tables():
        token = query.tokens[index]
        if token.text not in inputs and token.text not in own:
            yield Finding(token.line, f"reads `{token.text}`, which is not among input_datasets")
