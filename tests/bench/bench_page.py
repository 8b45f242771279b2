"""How fast the report page is in Chromium: loading it, and redrawing it as the slider moves.

``python tests/bench/bench_page.py`` prints both for 64 frames of 16 x 16 tokens with pictures of noise, all in view.
"""

from __future__ import annotations

import shutil
import statistics
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "helpers"))

# A step is the time from the slider's event to the end of the redraw it causes, which is done before the event returns.
STEP = """
(q) => {
  const slider = document.getElementById('rate'), start = performance.now();
  slider.value = q;
  slider.dispatchEvent(new Event('input'));
  return performance.now() - start;
}
"""


def main() -> None:
    """Write a page, open it, move its slider."""
    from playwright.sync_api import sync_playwright
    from views_made import make_run, make_view

    from evs_cli.report.page.writer import PageWriter

    rng = np.random.default_rng(0)
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as driver:
        writer = PageWriter(make_view(make_run((64, 16, 16))), Path(folder) / "report.html", 64)
        for index in writer.frame_indices:
            writer.add(index, rng.integers(0, 256, (448, 448, 3), dtype=np.uint8))
        (path,) = writer.finish()
        browser = driver.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1280, "height": 4000})
        start = time.perf_counter()
        page.goto(path.as_uri())
        page.wait_for_function("[...document.querySelectorAll('#strip canvas')].every((each) => each.height > 1)")
        load = time.perf_counter() - start
        steps = [page.evaluate(STEP, f"{step / 100:.2f}") for step in range(0, 100, 5)]
        browser.close()
        print(f"page of {path.stat().st_size / 1e6:.1f} MB: loaded and drawn in {load:.2f} s")
        print(f"a step of the slider: {statistics.median(steps):.1f} ms in the median, {max(steps):.1f} at most")


if __name__ == "__main__":
    main()
