"""The samplers, one file each. Importing this package registers them all; a new one needs one line here."""

from redraft.decoding import SAMPLERS, Sampler, outside
from redraft.samplers.adaptive import Adaptive
from redraft.samplers.core import CoRe
from redraft.samplers.corrective import Corrective
from redraft.samplers.d3im import D3IM
from redraft.samplers.dream import Dream
from redraft.samplers.editing import Editing
from redraft.samplers.factor import Factor
from redraft.samplers.pc import PC
from redraft.samplers.proseco import ProSeCo
from redraft.samplers.rcr import RCR
from redraft.samplers.remdm import ReMDM
from redraft.samplers.remedi import RemeDi
from redraft.samplers.soft import Soft
from redraft.samplers.spd import SPD
from redraft.samplers.t2m import T2M
from redraft.samplers.threshold import Threshold
from redraft.samplers.tolerator import Tolerator
from redraft.samplers.unmask import Unmask
from redraft.samplers.wino import WINO
from redraft.samplers.xdlm import XDLM

# What people type who come from LLaDA's `remasking` argument, from the paper, or from other toolkits.
for _other in ("low_confidence", "llada", "std", "standard"):
    SAMPLERS.alias(_other, "unmask")


def parse(text: str, *, files: bool = False) -> Sampler:
    """A sampler from its notation: `parse("d3im(t2t=False)")`.

    With `files` also from a file outside the package, `./mine.py:mine(k=3)`, which is run: say so only of what a user
    wrote on their own machine, never of what a server was sent.
    """
    return outside.read(text) if files and outside.names_file(text) else SAMPLERS.parse(text)


__all__ = [
    "D3IM",
    "PC",
    "RCR",
    "SPD",
    "T2M",
    "WINO",
    "XDLM",
    "Adaptive",
    "CoRe",
    "Corrective",
    "Dream",
    "Editing",
    "Factor",
    "ProSeCo",
    "ReMDM",
    "RemeDi",
    "Soft",
    "Threshold",
    "Tolerator",
    "Unmask",
    "parse",
]
