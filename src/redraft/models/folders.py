"""From a name to a folder: a bundled model, a local folder, or a hub repository (only its data files are fetched)."""

from __future__ import annotations

import json
import re
from importlib.resources import files
from pathlib import Path
from typing import Any

# Weights as safetensors, configs and tokenizers. No pickles and no Python files are ever downloaded.
DATA_FILES = ["*.json", "*.safetensors", "*.jinja", "merges.txt"]
HUB_NAME = re.compile(r"[A-Za-z0-9][\w.-]*/[\w.-]+")


def resolve(name: str | Path, revision: str | None = None) -> Path:
    """The folder that holds `name`: "bundled" or "bundled-...", a folder, or "owner/name" on the Hugging Face hub."""
    text = str(name)
    if revision is not None and not HUB_NAME.fullmatch(text):
        raise ValueError(f"{text} is not on the hub, so it has no revision {revision!r}: leave the revision out.")
    if text == "bundled" or text.startswith("bundled-"):
        return _bundled(text)
    folder = Path(text).expanduser()
    if folder.is_dir():
        return folder
    if HUB_NAME.fullmatch(text):
        return _from_hub(text, revision)
    raise ValueError(
        f'{text!r} is neither a folder here, nor "bundled", nor a hub name such as "GSAI-ML/LLaDA-8B-Instruct".'
    )


def _bundled(name: str) -> Path:
    home = Path(str(files("redraft.models")))
    if not (home / name / "config.json").is_file() and not (home / name / "adapter_config.json").is_file():
        there = sorted(path.parent.name for path in home.glob("bundled*/*config.json") if "tokenizer" not in path.name)
        raise ValueError(
            f"This installation of redraft has no {name!r} weights (it has: {', '.join(sorted(set(there))) or 'none'})."
        )
    return home / name


def _from_hub(name: str, revision: str | None) -> Path:
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import GatedRepoError, RepositoryNotFoundError, RevisionNotFoundError

    try:
        return Path(snapshot_download(name, revision=revision, allow_patterns=DATA_FILES))
    except GatedRepoError as error:
        raise ValueError(f"{name} is gated: accept its terms on the hub, then log in with `hf auth login`.") from error
    except RevisionNotFoundError as error:
        raise ValueError(f"{name} has no revision {revision!r} on the hub.") from error
    except RepositoryNotFoundError as error:
        raise ValueError(f"There is no {name} on the hub (or it is private), and no such folder here.") from error
    except OSError as error:  # no network, offline mode, a full disk: the library's message says which
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise ValueError(
            f"{name} is not a folder here, not in the hub's cache, and could not be downloaded ({reason})"
        ) from error


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object from a file, or one sentence about what is wrong with it."""
    if not path.is_file():
        raise ValueError(f"{path.parent} holds no {path.name}.")
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} is not JSON: {error}.") from error
    if not isinstance(value, dict):
        raise ValueError(f"{path} holds a JSON {type(value).__name__}, not an object.")
    return value
