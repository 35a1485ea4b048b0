"""Pages that are whole in themselves: one file each, with no script, style, font or picture from elsewhere.

A page is a package with `page.html`, `page.css` and `page.js`. A policy in its head admits this script and this style
by their hashes, and nothing else: whatever a model or a file wrote into a page, none of it runs or is fetched.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import unicodedata
from importlib.resources import files
from typing import Any

# Embeddings, overrides and isolates, which turn round what stands beside them.
TURNING = frozenset(("LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI"))


def assemble(package: str, *, data: Any, **parts: str) -> str:
    """The page of a package: its script finds `data` as JSON, and each `%name%` becomes the HTML of that part."""
    home = files(package)
    template, style, script = (
        (home / name).read_text(encoding="utf-8") for name in ("page.html", "page.css", "page.js")
    )
    policy = (
        f"default-src 'none'; script-src '{_hash(script)}'; style-src '{_hash(style)}'; base-uri 'none'; "
        "form-action 'none'"
    )
    parts |= {"policy": policy, "style": style, "script": script, "data": _json(data)}
    # In one pass: what was put in is not looked into again.
    return re.sub(r"%(\w+)%", lambda found: parts[found[1]], template)


def harmless(text: str) -> str:
    """Text without the characters that change how what stands beside them is drawn."""
    return "".join("\ufffd" if _turns(letter) else letter for letter in text)


def _turns(letter: str) -> bool:
    unseen = unicodedata.category(letter) in ("Cc", "Cs", "Zl", "Zp") and letter not in "\n\t"
    return unseen or unicodedata.bidirectional(letter) in TURNING


def _json(data: Any) -> str:
    """JSON that may stand inside a script element: nothing in it can end the element or begin a comment."""
    text = json.dumps(data, ensure_ascii=True, separators=(",", ":"))
    return text.replace("<", r"\u003c").replace(">", r"\u003e").replace("&", r"\u0026")


def _hash(content: str) -> str:
    """The name under which a policy admits this content, and no other."""
    return "sha256-" + base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
