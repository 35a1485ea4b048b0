"""The decoding core: canvas, clock, reading, samplers as a protocol, and the loop. It knows no sampler and no model."""

from redraft.decoding.canvas import Block, Canvas
from redraft.decoding.clock import SCHEDULES, Clock, Schedule
from redraft.decoding.noise import derive
from redraft.decoding.notation import Number, Registry, spell
from redraft.decoding.reading import Prediction, Reading, predict
from redraft.decoding.sampler import SAMPLERS, Sampler, Stage, candidates, equal_blocks, register, sure, top
from redraft.decoding.trajectory import Event, Recorder, Trajectory
from redraft.decoding.walk import Denoise, Denoiser, Step, uniform, walk

__all__ = [
    "SAMPLERS",
    "SCHEDULES",
    "Block",
    "Canvas",
    "Clock",
    "Denoise",
    "Denoiser",
    "Event",
    "Number",
    "Prediction",
    "Reading",
    "Recorder",
    "Registry",
    "Sampler",
    "Schedule",
    "Stage",
    "Step",
    "Trajectory",
    "candidates",
    "derive",
    "equal_blocks",
    "predict",
    "register",
    "spell",
    "sure",
    "top",
    "uniform",
    "walk",
]
