"""The tokens of one line of JSON, as Spark's own reader (Jackson) meets them, also behind an error. Pure.

Spark keeps what it has read of a damaged record, and goes on behind the error. So what a damaged line means depends on
where the reader stands after an error, and on how far it looks ahead. This module does both alike.
"""

from __future__ import annotations

import re
from typing import NoReturn

STRING, INTEGER, NUMBER, TRUE, FALSE, NULL, NAME = "string", "integer", "number", "true", "false", "null", "name"
OPEN_OBJECT, CLOSE_OBJECT, OPEN_LIST, CLOSE_LIST = "{", "}", "[", "]"
DEPTH_MAX = 1000
"""Jackson refuses more levels."""

_BLANKS = " \t\n\r"
_PLAIN = {quote: re.compile(rf"[^{quote}\\\x00-\x1f\udc80-\udcff]*") for quote in "\"'"}
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?")
_ESCAPES = {'"': '"', "\\": "\\", "/": "/", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "'": "'"}
_WORDS = {"t": ("true", TRUE), "f": ("false", FALSE), "n": ("null", NULL), "N": ("NaN", NUMBER)}
_WORDS["I"] = ("Infinity", NUMBER)


class BadJsonError(Exception):
    """The line cannot be read further, or a value does not fit its column."""


class _Level:
    """An object or a list that is open."""

    __slots__ = ("kind", "name", "size")

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.name: str | None = None
        self.size = 0


class Tokens:
    """Reads one token after the other.

    Parameters
    ----------
    line
        The line; bytes that are not UTF-8 are errors where they stand.
    """

    def __init__(self, line: bytes) -> None:
        self._line = line.removeprefix(b"\xef\xbb\xbf")
        self._all = self._line.decode(errors="surrogateescape")
        self._at = 0
        self._start = 0
        self._levels = [_Level("")]
        self._pending: str | None = None
        """The token behind a name: it is read together with the name."""
        self._quote: str | None = None
        """That of a string whose end was not looked for yet."""
        self._text = ""
        self.token: str | None = None
        """The last token; None at the end."""

    @property
    def name(self) -> str | None:
        """The name to which the last token belongs, in an object."""
        level = self._levels[-2] if self.token in (OPEN_OBJECT, OPEN_LIST) else self._levels[-1]
        return level.name

    def text(self) -> str:
        """The last scalar: the content of a string, the letters of all others."""
        if self._quote is not None:
            quote, self._quote = self._quote, None
            self._text = self._string(quote)
        return self._text

    def raw(self) -> str:
        """All letters of the last token; of an object or a list, up to its end."""
        start = self._start
        if self.token in (OPEN_OBJECT, OPEN_LIST):
            self.skip()
            return self._all[start : self._at]
        return self.text()

    def skip(self) -> None:
        """Pass over the rest of an object or a list, if one was just opened."""
        if self.token not in (OPEN_OBJECT, OPEN_LIST):
            return
        depth = 1
        while depth:
            token = self.next()
            if token is None:
                raise BadJsonError
            depth += (token in (OPEN_OBJECT, OPEN_LIST)) - (token in (CLOSE_OBJECT, CLOSE_LIST))

    def next(self) -> str | None:
        """Go to the next token.

        Raises
        ------
        BadJsonError
            There is none; the place is behind the character at fault.
        """
        if self.token == NAME:
            token, self._pending = self._pending, None
            if token in (OPEN_OBJECT, OPEN_LIST):
                self._open(token)
            self.token = token
            return token
        if self._quote is not None:
            quote, self._quote = self._quote, None
            self._string(quote)
        found = self._letter_or_end()
        if found is None:
            if len(self._levels) > 1:
                raise BadJsonError
            self.token = None
            return None
        if found in (CLOSE_LIST, CLOSE_OBJECT):
            return self._close(found)
        level = self._levels[-1]
        level.size += 1
        if level.kind and level.size > 1:
            if found != ",":
                raise BadJsonError
            found = self._letter()
        if level.kind != OPEN_OBJECT:
            token = self._value(found)
            if token in (OPEN_OBJECT, OPEN_LIST):
                self._open(token)
            self.token = token
            return token
        if found not in _PLAIN:
            raise BadJsonError
        level.name = self._string(found)
        self.token = NAME
        if self._letter() != ":":
            raise BadJsonError
        self._pending = self._value(self._letter())
        return NAME

    def _open(self, kind: str) -> None:
        self._levels.append(_Level(kind))
        if len(self._levels) - 1 > DEPTH_MAX:
            raise BadJsonError

    def _close(self, letter: str) -> str:
        if self._levels[-1].kind != (OPEN_LIST if letter == CLOSE_LIST else OPEN_OBJECT):
            raise BadJsonError
        self._levels.pop()
        self.token = letter
        return letter

    def _letter_or_end(self) -> str | None:
        size = len(self._all)
        while self._at < size:
            letter = self._all[self._at]
            self._start = self._at
            self._at += 1
            if letter not in _BLANKS:
                if letter < " ":
                    raise BadJsonError
                return letter
        return None

    def _letter(self) -> str:
        found = self._letter_or_end()
        if found is None:
            raise BadJsonError
        return found

    def _value(self, letter: str) -> str:
        """The token that begins with a letter; strings are read to their end later, all others at once."""
        if letter == '"':
            self._quote = letter
            return STRING
        if letter in (OPEN_OBJECT, OPEN_LIST):
            return letter
        if letter.isascii() and letter.isdigit():
            return self._number(self._start)
        if letter in "-+":
            if letter == "-" and self._all[self._at : self._at + 1] in tuple("0123456789"):
                return self._number(self._start)
            return self._signed_word()
        if letter == "'":
            self._text = self._string(letter)
            return STRING
        word, token = _WORDS.get(letter, ("", ""))
        if word:
            return self._word(word, 1, token)
        if letter.isalpha() or letter in "_$":
            self._fail_behind_word()
        raise BadJsonError

    def _number(self, start: int) -> str:
        found = _NUMBER.match(self._all, start)
        assert found is not None
        self._at = found.end()
        follows = self._all[self._at : self._at + 1]
        if follows == "." and not found[1] and not found[2]:
            self._at = min(self._at + 2, len(self._all))
            raise BadJsonError
        if follows in ("e", "E") and not found[2]:
            more = 3 if self._all[self._at + 1 : self._at + 2] in ("+", "-") else 2
            self._at = min(self._at + more, len(self._all))
            raise BadJsonError
        if follows.isascii() and follows.isdigit():  # a zero before it
            raise BadJsonError
        if len(self._levels) == 1 and follows and follows not in _BLANKS:
            raise BadJsonError
        self._text = found[0]
        return NUMBER if found[1] or found[2] else INTEGER

    def _signed_word(self) -> str:
        start, second = self._start, self._all[self._at + 1 : self._at + 2]
        if self._all[self._at : self._at + 1] != "I":
            self._at = min(self._at + 1, len(self._all))
            raise BadJsonError
        self._at = min(self._at + 2, len(self._all))
        if second not in ("N", "n") or not second:
            raise BadJsonError
        return self._word(self._all[start] + ("INF" if second == "N" else "Infinity"), 3, NUMBER)

    def _word(self, word: str, at: int, token: str) -> str:
        for letter in word[at:]:
            if self._all[self._at : self._at + 1] != letter:
                self._fail_behind_word()
            self._at += 1
        follows = self._all[self._at : self._at + 1]
        if follows.isalnum() or follows in ("_", "$"):
            self._fail_behind_word()
        self._text = word
        return token

    def _fail_behind_word(self) -> NoReturn:
        """Fail behind the word, and behind the letter that ends it: Jackson reads it for the text of its error."""
        while self._at < len(self._all):
            letter = self._all[self._at]
            self._at += 1
            if not (letter.isalnum() or letter in "_$"):
                break
        raise BadJsonError

    def _string(self, quote: str) -> str:
        parts = []
        while True:
            plain = _PLAIN[quote].match(self._all, self._at)
            assert plain is not None
            parts.append(plain[0])
            self._at = plain.end() + 1
            last = self._all[plain.end() : self._at]
            if last == quote:
                break
            if last != "\\":
                self._at = min(self._at, len(self._all))
                raise BadJsonError
            parts.append(self._escaped())
        found = "".join(parts)
        if found.isascii():
            return found
        # pairs of surrogates are one letter; one alone is a question mark, as in Java
        joined = found.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")
        return joined.encode(errors="replace").decode()

    def _escaped(self) -> str:
        letter = self._all[self._at : self._at + 1]
        self._at = min(self._at + 1, len(self._all))
        if letter in _ESCAPES:
            return _ESCAPES[letter]
        if letter != "u":
            raise BadJsonError
        code = 0
        for _ in range(4):
            digit = self._all[self._at : self._at + 1]
            self._at = min(self._at + 1, len(self._all))
            if not digit or digit not in "0123456789abcdefABCDEF":
                raise BadJsonError
            code = 16 * code + int(digit, 16)
        return chr(code)
