"""`redraft samplers`: what there is to decode with."""

from __future__ import annotations

import json
from dataclasses import MISSING, fields
from typing import Annotated, Any

import typer

from redraft.commands.console import out, plain, write


def samplers(
    as_json: Annotated[bool, typer.Option("--json", help="Print a list of objects.")] = False,
) -> None:
    """List the samplers: options, channels, reach, cost, origin."""
    described = describe_all()
    if as_json:
        write(json.dumps(described, indent=1))
        return
    from rich.console import Group
    from rich.table import Table

    table = Table("sampler", "", show_lines=True)
    for one in described:
        options = ", ".join(f"{name}={option['default']}" for name, option in one["options"].items())
        facts = {
            "options": options or "none",
            "may": ", ".join(_CHANNELS[channel] for channel in one["channels"]),
            "writes": one["reach"],
            "calls": one["calls"],
            "eos": one["eos"],
            "cite": one["citation"],
            "from": one["provenance"],
        }
        lines = Table.grid(padding=(0, 1))
        lines.add_column(style="dim")
        lines.add_column(overflow="fold")
        for name, fact in facts.items():
            lines.add_row(name, plain(fact))
        label = "\n[dim]experimental[/]" if one["experimental"] else ""
        table.add_row(f"[bold]{one['name']}[/]{label}", Group(plain(one["summary"]), lines))
    out.print(table, soft_wrap=False)


_CHANNELS = {"m2t": "reveal (m2t)", "t2t": "overwrite (t2t)", "t2m": "mask again (t2m)"}


def describe_all() -> list[dict[str, Any]]:
    """Every registered sampler as plain data."""
    from redraft import samplers as _  # registers them  # noqa: F401
    from redraft.decoding import SAMPLERS

    return [describe(name, SAMPLERS.classes[name]) for name in SAMPLERS]


def describe(name: str, cls: type) -> dict[str, Any]:
    from redraft.decoding.notation import describe as describe_type
    from redraft.decoding.notation import option_types

    types, sampler = option_types(cls), cls()
    options = {
        field.name: {
            "default": None if field.default is MISSING else field.default,
            "type": describe_type(types[field.name]),
        }
        for field in fields(cls)
    }
    calls = sampler.calls(256, 64, None)
    return {
        "name": name,
        "summary": (cls.__doc__ or "").strip().splitlines()[0],
        "options": options,
        "channels": [channel for channel in _CHANNELS if channel in sampler.channels],
        "reach": sampler.reach,
        "calls": "one a step" if calls == 64 else f"at most {calls} for 64 steps of 256 tokens",
        "eos": sampler.eos,
        "experimental": sampler.experimental,
        "citation": sampler.citation,
        "provenance": sampler.provenance,
    }
