"""From what a model wrote to the part that is graded: special tokens go, code comes out of its fences."""

from __future__ import annotations

import re

ENDS = re.compile(r"<\|(?:endoftext|eot_id|im_end|end_of_text)\|>|</s>")
SPECIAL = re.compile(r"<\|[A-Za-z0-9_]{1,40}\|>|<s>|\[MASK\]")
FENCE = re.compile(r"^(?P<margin>[ \t]*)(?:```|~~~)[ \t]*(?P<language>[\w+#.-]*)[^\n]*(?:\n|\Z)", re.M)
PYTHON = frozenset({"", "py", "python", "python2", "python3"})
# What a line at the margin of a program begins with. What else stands there is prose.
CODE = re.compile(
    r"(?:async\s+def|def|class|import|from|if|elif|else|for|while|try|except|finally|with|return|global|raise|pass)\b"
    r"|[@#)\]}]|\"\"\"|'''|[A-Za-z_][\w.\[\], ]*\s*(?:[-+*/%]?=[^=]|:\s*\w+\s*=)"
    r"|[A-Za-z_][\w.]*\((?:.*[)\]}(\[{,\\])?\s*(?:#.*)?\Z"  # a call, and nothing behind it
)
BEGINS = re.compile(
    r"^(?:(?:async\s+)?def\s+\w+\s*\(|class\s+\w+\s*[(:]|import\s+\w|from\s+\S+\s+import\b|@\w|\w+ *= *lambda\b)", re.M
)
DEFINES = re.compile(r"^(?:(?:async\s+)?def|class)\s+\w|^\w+ *= *lambda\b", re.M)
QUOTED = re.compile(r"(\"\"\"|''').*?(?:\1|\Z)", re.S)


def text_of(response: str) -> str:
    """Up to the first end token, without other special tokens, with plain line ends."""
    text = ENDS.split(response, maxsplit=1)[0]
    return SPECIAL.sub("", text).replace("\r\n", "\n").replace("\r", "\n")


def fenced(text: str) -> list[str]:
    """The fenced blocks of Python, the last of which may be left open."""
    marks = list(FENCE.finditer(text))
    blocks = []
    while marks:
        opened = marks.pop(0)
        closed = next((mark for mark in marks if not mark["language"]), None)  # a closing fence names no language
        if closed is not None:
            del marks[: marks.index(closed) + 1]
        else:
            marks.clear()
        if opened["language"].lower() in PYTHON:
            block = text[opened.end() : closed.start() if closed else len(text)]
            blocks.append(re.sub(f"^{opened['margin']}", "", block, flags=re.M))  # a block within a list
    return blocks


def defines(code: str, name: str) -> bool:
    return re.search(rf"^(?:async\s+)?def\s+{re.escape(name)}\s*\(|^{re.escape(name)}\s*=", code, re.M) is not None


def program(text: str, name: str | None = None) -> str | None:
    """The program of a response: what begins before any fence; the first block that defines `name`, or anything where
    no name is given; the first block."""
    fence = FENCE.search(text)
    bare = unfenced(text[: fence.start()] if fence else text)
    if bare is not None:
        return bare
    blocks = [block for block in fenced(text) if block.strip()]
    defining = (block for block in blocks if (DEFINES.search(block) if name is None else defines(block, name)))
    return next(defining, next(iter(blocks), None))


def unfenced(text: str) -> str | None:
    """Lines from where a program begins, with what leads up to it, to the first at the margin that is prose."""
    begun = BEGINS.search(text)
    if begun is None:
        return None
    lines, start = _margins(text), text[: begun.start()].count("\n")
    while start and _is_code(lines[start - 1]):
        start -= 1
    end = next((n for n in range(start, len(lines)) if not _is_code(lines[n])), len(lines))
    return "\n".join(text.split("\n")[start:end])


def before_prose(body: str) -> str:
    """A body up to the first line at the margin behind it that is prose."""
    lines = _margins(body)
    start = next((n for n, line in enumerate(lines) if line.strip()), 0) + 1  # it may have lost its indentation
    end = next((n for n in range(start, len(lines)) if not _is_code(lines[n])), len(lines))
    return "\n".join(body.split("\n")[:end])


def _margins(text: str) -> list[str]:
    """Its lines; what stands within a string, which may reach to the margin, is moved in."""
    return QUOTED.sub(lambda quoted: re.sub(r"\n(?=\S)", "\n ", quoted[0]), text).split("\n")


def _is_code(line: str) -> bool:
    return not line[:1].strip() or CODE.match(line) is not None
