from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from k80keras.errors import MissingDependencyError
from k80keras.fit.result import Candidate, TuningResult
from k80keras.report import write_html

RESULT = TuningResult(
    status="tuned",
    reason="K = 16 is within 2 % of the best <script>alert(1)</script>",
    steps_per_execution=16,
    candidates=(
        Candidate(1, False, 0.00089, 0.00003, 40),
        Candidate(16, False, 0.00041, 0.00001, 12),
        Candidate(16, True, 0.00063, 0.00002, 8),
    ),
    steps=2200,
    steps_per_second=1810.5,
    input_wait_fraction=0.034,
    seconds_saved=1.04,
    seconds_spent=0.02,
    notes=("XLA was tried and lost",),
    environment={"device": "CPU (2 cores)", "tensorflow": "2.x", "keras": "3.x"},
)
HISTORY = {
    "loss": [2.1, 1.0, float("nan"), 0.4],
    "val_loss": [1.7, 0.9, 0.7, 0.6],
    "accuracy": [0.3, 0.7, 0.8, 0.9],
    "val_accuracy": [0.4, 0.71, 0.8, 0.87],
    "steps_per_second": [900.0, 1800.0, 1850.0, 1830.0],
    "input_wait_fraction": [0.2, 0.03, 0.03, 0.03],
}


def test_page_tells_everything_and_needs_no_network(tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    write_html(path, RESULT, HISTORY, title="cnn on <digits>")
    page = path.read_text(encoding="utf-8")
    assert not re.search(r"(?:src|href|url\(|@import|https?:)", page)
    assert "<script" not in page
    for text in (
        "cnn on &lt;digits&gt;",
        "16 training steps per execution, without XLA",
        "K = 16 is within 2 % of the best",
        "0.410",
        "XLA was tried and lost",
        "measured during this training run, on CPU (2 cores)",
        "87.0 %",
    ):
        assert text in page
    assert page.count("<figure") == 4
    assert page.count('class="chosen"') == 1
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(
    "history", [{}, {"loss": [float("nan")]}, {"loss": [0.0]}, {"loss": [1e30, 1e-30]}]
)
def test_page_can_do_with_little(
    tmp_path: Path, history: dict[str, list[float]]
) -> None:
    path = tmp_path / "report.html"
    write_html(path, TuningResult("off", "eager"), history)
    assert "Plain Keras ran" in path.read_text(encoding="utf-8")


def test_without_jinja2_the_old_page_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "report.html"
    path.write_text("old")
    monkeypatch.setitem(sys.modules, "jinja2", None)
    with pytest.raises(MissingDependencyError, match=r"k80keras\[report\]"):
        write_html(path, RESULT, HISTORY)
    assert path.read_text() == "old"


@pytest.mark.slow
def test_page_opens_in_a_browser(tmp_path: Path) -> None:
    browser = shutil.which("chromium")
    if browser is None:
        pytest.skip("no chromium here; CI installs it")
    path = tmp_path / "report.html"
    write_html(path, RESULT, HISTORY)
    # What the browser understood, written into the page that it shows.
    probe = (
        "<script>addEventListener('load', () => {"
        "const root = document.documentElement;"
        "document.title = [root.scrollWidth <= innerWidth,"
        "document.querySelectorAll('#candidates tbody tr').length,"
        "[...document.querySelectorAll('svg')]"
        ".filter(svg => svg.getBBox().width > 300).length"
        "].join()})</script></head>"
    )
    page = path.read_text(encoding="utf-8").replace("</head>", probe)
    path.write_text(page, encoding="utf-8")
    done = subprocess.run(
        [
            browser,
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-sync",
            "--no-first-run",
            f"--user-data-dir={tmp_path / 'profile'}",
            "--window-size=400,800",
            "--virtual-time-budget=2000",
            "--dump-dom",
            path.as_uri(),
        ],
        capture_output=True,
        text=True,
        timeout=120,
    )
    title = re.search(r"<title>(.*?)</title>", done.stdout)
    assert title is not None, done.stderr
    assert title[1] == "true,3,4"
