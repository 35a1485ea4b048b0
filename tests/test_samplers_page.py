"""docs/samplers.md and `redraft samplers` tell of every sampler what the sampler says of itself."""

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

import redraft.samplers  # registers them
from fakes import NO_EOS, Chaos, decode
from redraft.decoding import SAMPLERS, Reading
from redraft.generation import Plan
from running import run

SHAPE = {"length": 24, "steps": 8}
DOCS = Path(__file__).parents[1] / "docs"
PARTS = re.split(r"^### `(\w+)`\n", (DOCS / "samplers.md").read_text().split("## Not built")[0], flags=re.M)
PARAGRAPHS = dict(zip(PARTS[1::2], PARTS[2::2], strict=True))
OURS = [name for name in SAMPLERS if SAMPLERS.classes[name].__module__.startswith(f"{redraft.samplers.__name__}.")]


def test_it_has_every_sampler_and_no_other():
    assert sorted(PARAGRAPHS) == sorted(OURS)


@pytest.mark.parametrize("name", OURS)
def test_a_paragraph_agrees_with_its_sampler(name):
    cls, text = SAMPLERS.classes[name], " ".join(PARAGRAPHS[name].split())
    assert text.startswith("*Experimental.*") == cls.experimental
    for source in re.findall(r"arXiv \d+\.\d+|\w+ @ [0-9a-f]{7}", f"{cls.citation}; {cls.provenance}"):
        assert source in text or name == "adaptive"  # which cites what it builds upon
    assert ("Inferred" in text) == ("inferred" in cls.provenance)
    for option in re.findall(r"`(\w+)=", text):
        assert option in cls.__dataclass_fields__


@pytest.mark.parametrize(("option", "value"), [("rank", "margin"), ("temperature", 0.8)])
def test_it_says_which_samplers_go_their_own_way(option, value):
    said = {
        "rank": {"dream", "pc", "factor", "remedi", "corrective", "spd"},
        "temperature": {"tolerator"},
    }[option]
    text = " ".join(PARTS[0].split()).split("Where a method defines")[1]
    assert all(f"`{name}" in text for name in said)
    assert {name for name in OURS if not matters(name, option, value)} == said
    reading = Reading(**{option: value})
    noted = {name for name in OURS if any(option in note for note in Plan.of(name, **SHAPE, reading=reading).notes)}
    assert noted == said


def test_the_variants_that_it_names_are_those_that_do():
    ways = [("remedi(score=probability)", "rank"), ("corrective(rule=linear)", "rank")]
    assert all(matters(notation, option, "margin") for notation, option in ways)
    assert not matters("corrective(rule=mad)", "rank", "margin")
    assert not matters("remdm(style=ancestral, eta=0.2)", "temperature", 0.8)
    assert not any(Plan.of(notation, **SHAPE, reading=Reading(rank="margin")).notes for notation, _ in ways)
    assert Plan.of("remdm(style=ancestral)", **SHAPE, reading=Reading(temperature=0.8)).notes


def matters(notation: str, option: str, value) -> bool:
    """Whether an option of the reading ever changes what is written."""
    readings = (NO_EOS, replace(NO_EOS, **{option: value}))
    return any(
        len({str(decode(notation, Chaos(seed, spread=9.0), 24, 8, reading=reading)) for reading in readings}) > 1
        for seed in range(4)
    )


def test_what_is_not_built_is_named_with_the_reason():
    text = (DOCS / "samplers.md").read_text().split("## Not built")[1]
    assert "**STaRR**" in text
    assert "Neither formulas nor code were found" in " ".join(text.split())
    assert "starr" not in SAMPLERS


def test_the_command_lists_every_sampler_whole():
    listed = {one["name"]: one for one in json.loads(run("samplers", "--json").out)}
    assert sorted(listed) == sorted(SAMPLERS)
    shown = re.sub(r"[│\s]+", " ", run("samplers").out)
    for name, one in listed.items():
        sampler = SAMPLERS.classes[name]()
        options = {option: about["default"] for option, about in one["options"].items()}
        assert options == {field: getattr(sampler, field) for field in sampler.__dataclass_fields__}
        assert set(one["channels"]) == sampler.channels
        assert (one["reach"], one["eos"], one["experimental"]) == (sampler.reach, sampler.eos, sampler.experimental)
        assert all(one[fact] in shown for fact in ("calls", "citation", "provenance"))


def test_the_glossary_leads_to_it():
    assert "(samplers.md)" in (DOCS / "glossary.md").read_text()
