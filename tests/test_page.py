"""Pages: whole in themselves, closed to whatever is written into them, and told what may run by its hash."""

import base64
import hashlib
import json
import re
from importlib.resources import files

import pytest

from redraft.page import assemble, harmless

PACKAGES = ["redraft.replay", "redraft.evals.page"]
HOSTILE = [
    "</script><script>alert(1)</script>",
    "<!-- <script>",
    "&lt;b&gt; & <b>",
    "'\" onload=x",
    "\u2028\u2029\x00\x1b[31m",
    "\u202eright to left",
    "%data% %script% %policy%",
    "\ud800",
]


def parts(package, text=""):
    """A page's own marks, each with this text."""
    marks = re.findall(r"%(\w+)%", (files(package) / "page.html").read_text())
    return {name: text for name in marks if name not in ("policy", "style", "script", "data")}


def data_of(page):
    """What the page's script reads, as its parser finds it: up to the first end of a script element."""
    inside = re.search(r'<script[^>]*id="data"[^>]*>(.*?)</script', page, flags=re.S)[1]
    return json.loads(inside)


@pytest.mark.parametrize("package", PACKAGES)
def test_data_come_back_whatever_is_in_them(package):
    page = assemble(package, data=HOSTILE, **parts(package))
    assert data_of(page) == HOSTILE
    assert page.count("<script") == page.count("</script") == 2


@pytest.mark.parametrize("package", PACKAGES)
def test_what_is_put_in_is_not_looked_into_again(package):
    page = assemble(package, data=["secret"], **parts(package, "%data%%style%"))
    assert page.count("secret") == 1
    assert page.count("<style>") == 1
    assert "%data%%style%" in page


@pytest.mark.parametrize("package", PACKAGES)
def test_nothing_comes_from_elsewhere(package):
    page = assemble(package, data=[], **parts(package))
    addresses = set(re.findall(r"\w+://[^\s\"'<>`]*", page))
    assert addresses <= {"http://www.w3.org/2000/svg"}, "a name, not an address"
    assert not re.search(r"\b(src|href|action)\s*=|@import|url\(|\bfetch\(|XMLHttpRequest|WebSocket|import\(", page)


@pytest.mark.parametrize("package", PACKAGES)
def test_the_policy_admits_this_script_and_this_style_and_no_other(package):
    page = assemble(package, data=[], **parts(package))
    policy = re.search(r'Content-Security-Policy" content="(.*?)"', page)[1]
    given = dict(rule.split(" ", 1) for rule in policy.split("; "))
    style, script = re.search(r"<style>(.*?)</style>", page, flags=re.S)[1], page.rsplit("<script>", 1)[1]
    for rule, content in (("style-src", style), ("script-src", script.split("</script>")[0])):
        digest = base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
        assert given[rule] == f"'sha256-{digest}'"
    assert given["default-src"] == given["base-uri"] == given["form-action"] == "'none'"


@pytest.mark.parametrize(
    ("text", "drawn"),
    [
        ("a b\n\tc", "a b\n\tc"),
        ("naïve 日本\u3000\u00a0é", "naïve 日本\u3000\u00a0é"),
        ("می\u200cخواهم", "می\u200cخواهم"),  # a joiner is part of the word
        ("\x00\x1b\r", "\ufffd\ufffd\ufffd"),
        ("a\u202eb\u2066c", "a\ufffdb\ufffdc"),
        ("\u2028\u2029", "\ufffd\ufffd"),
        ("\ud800", "\ufffd"),
    ],
)
def test_characters_that_change_how_others_are_drawn_are_not(text, drawn):
    assert harmless(text) == drawn
