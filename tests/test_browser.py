"""The pages in a real browser: their scripts run without an error, show what is recorded, and run nothing else.

A page is opened with a script of the test's own behind it, which its policy is made to admit; what that script says is
read from the page as the browser has it in the end.
"""

import base64
import hashlib
import json
import re
import shutil
import subprocess
from html import unescape

import pytest

from fakes import EOS, MASK
from redraft.decoding import Trajectory
from redraft.evals.page import html
from redraft.evals.rows import results
from redraft.page import harmless
from redraft.replay import page
from test_page import HOSTILE
from test_replay import RUN, recorded
from test_rows import UNMASK, drawn, one, put

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
BROWSER = next(filter(None, map(shutil.which, NAMES)), None)
pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(BROWSER is None, reason="no Chromium is installed"),
]


def opened(text, script, folder, *options):
    """What the script returns in the page, and what the browser's console was told."""
    script = f"""
      const said = document.createElement("pre");
      said.id = "said";
      (async () => {{ {script} }})().then((result) => {{
        said.textContent = JSON.stringify(result);
        document.body.append(said);
      }});
    """
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    text = text.replace("script-src ", f"script-src 'sha256-{digest}' ", 1)
    text = text.replace("</body>", f"<script>{script}</script></body>")
    (folder / "page.html").write_text(text, encoding="utf-8")
    done = subprocess.run(
        [
            BROWSER, "--headless", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr", "--dump-dom",
            "--virtual-time-budget=20000", f"--user-data-dir={folder / 'profile'}", *options,
            f"file://{folder / 'page.html'}",
        ],
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    found = re.search(r'<pre id="said">(.*?)</pre>', done.stdout, flags=re.S)
    console = [line for line in done.stderr.splitlines() if ":CONSOLE" in line]
    assert found, (console, done.stderr[-2000:])
    return json.loads(unescape(found[1])), console


# --- replays ---

PRESS = """
  const press = (key) =>
    document.activeElement.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true, cancelable: true }));
"""
LOOK = """
  const look = () => [...document.querySelectorAll(".run")].map((run) => ({
    texts: [...run.querySelectorAll(".text .token")].map((token) => token.textContent),
    kinds: [...run.querySelectorAll(".text .token")].map((token) => token.className),
    counts: run.querySelector(".counts").textContent,
  }));
  const slider = document.getElementById("step");
  const slide = (step) => { slider.value = step; slider.dispatchEvent(new Event("input")); };
"""


def drawn_as(run: Trajectory, row: int, step: int, position: int) -> tuple[str, str]:
    """The text and the kind of a token at a step, from the recording alone."""
    token = int(run.tokens[step, row, position])
    kinds = [event.kind for event in run.events(row) if event.step == step - 1 and event.position == position]
    kind = kinds[0] if kinds else ""
    text = "■" if token in EOS else "·" if token == MASK else harmless(run.texts[token])
    return ("×" if kind == "demotion" else text), kind


def test_a_replay_shows_every_step_of_every_row(tmp_path):
    steps, rows, length = len(RUN), RUN.rows, RUN.tokens.shape[2]
    script = (
        LOOK
        + f"""
      const found = [];
      for (let row = 0; row < {rows}; row += 1) {{
        const choice = document.getElementById("row");
        choice.value = row;
        choice.dispatchEvent(new Event("change"));
        for (let step = 0; step <= {steps}; step += 1) {{ slide(step); found.push(look()[0]); }}
      }}
      return found;
    """
    )
    found, console = opened(page([RUN]), script, tmp_path)
    assert console == []
    kinds = set()
    for row in range(rows):
        for step in range(steps + 1):
            shown = found[row * (steps + 1) + step]
            assert len(shown["texts"]) == length
            for position in range(length):
                text, kind = drawn_as(RUN, row, step, position)
                assert shown["texts"][position] == text
                said = set(shown["kinds"][position].split())
                assert said & {"reveal", "overwrite", "demotion"} == ({kind} if kind else set())
                kinds.add(kind)
        total = RUN.counts(row)
        assert shown["counts"].startswith(f"{total['reveal']} revealed, {total['overwrite']} overwritten")
    assert kinds == {"", "reveal", "overwrite", "demotion"}


def test_a_replay_is_driven_by_keys_and_pointers(tmp_path):
    script = (
        PRESS
        + """
      const place = () => document.getElementById("place").textContent, seen = [place()];
      for (const key of ["Home", "ArrowRight", "ArrowRight", "ArrowLeft", "End"]) { press(key); seen.push(place()); }
      press(" "); // 0.7 s a step
      for (const pause of [1000, 5000]) {
        await new Promise((resolve) => setTimeout(resolve, pause));
        seen.push(place());
      }
      document.querySelectorAll(".text .token")[2].dispatchEvent(new PointerEvent("pointerover", { bubbles: true }));
      const history = document.getElementById("history");
      const head = () => history.querySelector("h3").textContent, told = head();
      const stood = [...history.querySelectorAll("li")].map((one) => one.textContent);
      press("ArrowDown");
      return { seen, told, stood, next: head(), play: document.getElementById("play").textContent };
    """
    )
    found, console = opened(page([RUN]), script, tmp_path)
    assert console == []
    assert found["seen"] == [f"step {step} of 8" for step in (8, 0, 1, 2, 1, 8, 1, 8)], (
        "played from the start to the end"
    )
    assert found["play"] == "Play"
    assert found["told"].startswith("Position 3")
    assert found["next"].startswith("Position 4")
    words = {"reveal": "revealed", "overwrite": "overwritten", "demotion": "masked again"}
    events = [event for event in RUN.events(0) if event.position == 2]
    assert len(found["stood"]) == len(events)
    for said, event in zip(found["stood"], events, strict=True):
        assert said.startswith(f"step {event.step + 1}: ")
        assert words[event.kind] in said


def test_two_replays_stand_side_by_side_or_one_above_the_other(tmp_path):
    script = """
      const [one, other] = [...document.querySelectorAll(".run")].map((run) => run.getBoundingClientRect());
      const titles = [...document.querySelectorAll("h2")].map((head) => head.firstChild.data);
      return { titles, beside: one.top === other.top,
        wide: document.documentElement.scrollWidth <= innerWidth };
    """
    runs = [RUN, recorded("unmask")]
    for width, beside in ((1200, True), (500, False)):
        found, console = opened(page(runs), script, tmp_path, f"--window-size={width},900")
        assert console == []
        assert found == {"beside": beside, "titles": ["d3im", "unmask"], "wide": True}


def test_nothing_that_was_written_into_a_page_runs(tmp_path):
    prompts = [HOSTILE[0], "<img src=x onerror=alert(1)>", "&lt;b&gt;"]
    attack = recorded(prompts=prompts, verdicts=HOSTILE[:3])
    attack.about["sampler"] = "<script>alert(2)</script>"
    script = """
      return { scripts: document.querySelectorAll("script").length, images: document.querySelectorAll("img").length,
        prompt: document.getElementById("prompt").textContent, title: document.querySelector("h2").firstChild.data };
    """
    found, console = opened(page([attack], titles=[HOSTILE[0]], heading=HOSTILE[1]), script, tmp_path)
    assert console == []
    assert found == {"scripts": 3, "images": 0, "prompt": HOSTILE[0], "title": HOSTILE[0]}


def test_the_policy_stops_what_it_does_not_name(tmp_path):
    """Were a script to get into a page all the same, it would not be run: the proof that the policy is alive."""
    text = page([RUN]).replace(
        "</body>", "<script>document.title = 'mine'</script><img src='https://example.org/x'></body>"
    )
    found, console = opened(text, "return document.title;", tmp_path)
    assert found == "How the answer came about"
    assert len([line for line in console if "Content Security Policy" in line]) == 2


# --- sweeps ---


@pytest.fixture
def sweep(tmp_path):
    samplers = [("unmask", 2, True), ("unmask", 4, True), ("d3im", 4, True), ("threshold", 16, False)]
    asked = [
        put(tmp_path, one(sampler, steps, adapter=adapter, paced=paced), drawn(60, 0.3 + 0.05 * place, place))
        for adapter in ("none", HOSTILE[0])
        for place, (sampler, steps, paced) in enumerate(samplers)
    ]
    return html(*results(tmp_path, asked, UNMASK), UNMASK, HOSTILE[0])


@pytest.mark.parametrize("options", [[], ["--window-size=500,900"], ["--force-dark-mode", "--window-size=1300,900"]])
def test_a_sweep_is_drawn_and_answers(sweep, tmp_path, options):
    script = (
        PRESS
        + """
      const points = () => document.querySelectorAll(".point").length, seen = [points()];
      const buttons = [...document.querySelectorAll("#shown button")];
      buttons[0].click(); seen.push(points());
      document.querySelectorAll("#shown button")[4].click(); seen.push(points());
      document.querySelectorAll("#shown button")[3].click(); seen.push(points());
      for (const name of ["log", "whiskers"]) document.getElementById(name).click();
      document.querySelector("input[value=processed]").click();
      seen.push(points());
      const first = document.querySelector(".point"), tip = document.getElementById("tip");
      first.focus();
      const box = tip.getBoundingClientRect();
      const told = tip.textContent;
      press("ArrowRight");
      return { seen, told, next: tip.textContent, inside: box.left >= 0 && box.right <= innerWidth && !tip.hidden,
        buttons: buttons.map((one) => one.textContent), whiskers: document.querySelectorAll(".whisker").length,
        stops: document.querySelectorAll(".point[tabindex='0']").length,
        wide: document.documentElement.scrollWidth <= innerWidth, scripts: document.querySelectorAll("script").length,
        heads: [...document.querySelectorAll("figure h2")].map((one) => one.textContent),
        colour: getComputedStyle(document.body).backgroundColor };
    """
    )
    found, console = opened(sweep, script, tmp_path, *options)
    assert console == []
    assert found["seen"] == [8, 4, 0, 8, 8], "all, without unmask, none, all again, along another axis"
    assert found["buttons"] == ["unmask", "d3im", "threshold", "all", "none"]
    assert "unmask" in found["told"]
    assert "steps2" in found["told"]
    assert "steps4" in found["next"], "the next along the line"
    assert found["whiskers"] == 0
    assert found["stops"] == 2, "one for each panel"
    assert found["inside"]
    assert found["wide"]
    assert found["scripts"] == 3
    assert found["heads"] == ["words, no adapter, 60 items", f"words, {HOSTILE[0]}, 60 items"]
    assert (found["colour"] == "rgb(255, 255, 255)") == ("--force-dark-mode" not in options)
