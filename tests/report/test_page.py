"""The report page in a real browser: its masks are the library's, cell by cell, and it asks for nothing.

Chromium is Debian's package; without it these tests are skipped, unless ``EVS_TEST_CHROMIUM`` says that it must be
there.
"""

import os
import shutil

import numpy as np
import pytest
from video_files import write_video
from views_made import make_run, make_view

from evs_cli.core.methods import METHODS, RetentionRule
from evs_cli.core.pixel_region import PixelRegion
from evs_cli.jobs.source_frames import SourceFrames
from evs_cli.jobs.viewed_run import SequenceCost
from evs_cli.report.page.writer import MAX_PAGE_BYTES, PageWriter

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
if CHROMIUM is None and not os.environ.get("EVS_TEST_CHROMIUM"):
    pytest.skip("the page is tested in Chromium, which is not installed", allow_module_level=True)

# The page itself paints, so a cell's colour is read where no outline runs: in its middle.
READ_CELLS = """
([selector, height, width, box]) => {
  const canvas = document.querySelector(selector), context = canvas.getContext('2d');
  const cells = [];
  for (let row = 0; row < height; row++) for (let column = 0; column < width; column++) {
    const x = box[1] + (box[3] - box[1]) * (column + 0.5) / width;
    const y = box[0] + (box[2] - box[0]) * (row + 0.5) / height;
    const pixel = context.getImageData(Math.floor(x * canvas.width), Math.floor(y * canvas.height), 1, 1);
    cells.push([...pixel.data.slice(0, 3)]);
  }
  return cells;
}
"""
WHOLE = [0, 0, 1, 1]


@pytest.fixture(scope="module")
def browser():
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        # The sandbox wants rights that a container seldom gives; the page is our own.
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def opened(browser, tmp_path):
    """``opened(view)``: the page in a tab of its own; at the end, that nothing was asked for and nothing failed."""
    faults, contexts = [], []

    def open_page(view, max_frames=64, **look):
        path = tmp_path / "report.html"
        writer = PageWriter(view, path, max_frames, overwrite=True)
        if view.frames is not None:
            for index, picture in view.frames.read(writer.frame_indices):
                writer.add(index, picture)
        writer.finish()
        context = browser.new_context(viewport={"width": 1280, "height": 1400}, **look)
        contexts.append(context)
        page = context.new_page()
        # Chromium advises a page whose pixels are read often, as these tests read them.
        page.on("console", lambda said: None if "willReadFrequently" in said.text else faults.append(said.text))
        page.on("pageerror", lambda error: faults.append(str(error)))
        page.on(
            "request",
            lambda request: None if request.url.startswith(("data:", path.as_uri())) else faults.append(request.url),
        )
        page.goto(path.as_uri())
        page.wait_for_selector("html[data-drawn=true]", state="attached")
        # Cards in view are painted when the browser says that they are; before, a canvas is 150 pixels high.
        page.wait_for_function("document.querySelector('#strip canvas').height !== 150")
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert faults == []


def shown_mask(page, place, height, width, box=WHOLE):
    """(h, w) bool: the cells of a frame in the strip that are clear; without a picture they are light, else dark."""
    selector = f"#strip button:nth-child({place + 1}) canvas"
    colours = np.array(page.evaluate(READ_CELLS, [selector, height, width, box]))
    return colours.mean(axis=1).reshape(height, width) > 128


def set_rate(page, q):
    page.locator("#rate-number").fill(repr(q))


def settle(page):
    page.evaluate("() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")


@pytest.mark.parametrize("q", [0.0, 0.1, 0.5, 0.7, 0.9, 0.99, 1 / 3])
def test_the_slider_shows_the_librarys_masks_cell_by_cell(opened, q):
    run = make_run((7, 4, 5))
    page = opened(make_view(run))
    set_rate(page, q)
    settle(page)
    expected = run.ranking.at(q)
    for frame in range(7):
        np.testing.assert_array_equal(shown_mask(page, frame, 4, 5), expected.retention_mask[frame].numpy())
    assert page.inner_text("#numbers dd .value >> nth=0") == f"{expected.retained_tokens:,}"


@pytest.mark.parametrize("method", list(METHODS))
@pytest.mark.parametrize("q", [0.0, 0.35, 0.8])
def test_every_method_is_the_librarys(opened, method, q):
    run = make_run((6, 3, 5), q=q, rule=RetentionRule(method, seed=3))
    page = opened(make_view(run))
    for frame in range(6):
        expected = run.retention.retention_mask[frame].numpy()
        np.testing.assert_array_equal(shown_mask(page, frame, 3, 5), expected)


def test_a_floor_holds_at_every_rate(opened):
    rule = RetentionRule(min_dissimilarity=0.5)
    run = make_run((6, 4, 5), q=0.1, rule=rule)
    page = opened(make_view(run))
    for q in (0.1, 0.6):
        set_rate(page, q)
        settle(page)
        expected = rule.retain(run.ranking, q).retention_mask
        for frame in range(6):
            np.testing.assert_array_equal(shown_mask(page, frame, 4, 5), expected[frame].numpy())


def test_the_slider_itself_moves_everything(opened):
    run = make_run((8, 4, 4), q=0.5, cost=SequenceCost(1000, {None: 8, 100: 2}))
    page = opened(make_view(run))
    page.locator("#rate").fill("0.75")
    settle(page)
    retained = run.ranking.retained_tokens(0.75)
    length = run.sequence_length(retained)
    values = page.locator("#numbers dd .value").all_inner_texts()
    assert values[:3] == [f"{retained:,}", f"{length:,}", f"{length / 10:.1f}%"]
    assert run.cost.kv_cache_bytes(length) == 8 * length + 2 * min(length, 100)
    assert values[3] == f"{run.cost.kv_cache_bytes(length)} B"
    assert f"At q = 0.75 the video costs {length:,} ids" in page.inner_text("#sentence")
    assert page.input_value("#rate-number") == "0.75"


def test_the_time_line_and_the_keys_choose_a_frame(opened):
    page = opened(make_view(make_run((10, 3, 3))))
    box = page.locator("#timeline").bounding_box()
    page.mouse.click(box["x"] + box["width"] * 0.75, box["y"] + 20)
    assert page.get_attribute("#strip button:nth-child(8)", "aria-current") == "true"
    page.mouse.move(box["x"] + box["width"] * 0.05, box["y"] + 20)
    assert "9 of 9 kept" in page.inner_text("#tooltip")
    for key, place in [("ArrowRight", 9), ("End", 10), ("ArrowRight", 10), ("ArrowLeft", 9), ("Home", 1)]:
        page.keyboard.press(key)
        assert page.get_attribute(f"#strip button:nth-child({place})", "aria-current") == "true", key


def test_keys_of_rate_heat_original_help_and_play(opened):
    page = opened(make_view(make_run((4, 3, 3), q=0.5)))
    page.keyboard.press("]")
    page.keyboard.press("]")
    page.keyboard.press("[")
    assert page.input_value("#rate-number") == "0.51"
    page.keyboard.press("h")
    assert page.get_attribute("#heat", "aria-pressed") == "true"
    assert "dissimilarity" in page.inner_text("#frame-legend")
    page.keyboard.press("?")
    assert page.is_visible("#keys")
    page.keyboard.press("End")
    page.keyboard.press(" ")  # plays from the front again, at two frames a second
    page.wait_for_selector("#strip button:nth-child(2)[aria-current=true]", timeout=5000)
    page.keyboard.press(" ")
    assert page.inner_text("#play") == "Play"


def test_a_slider_in_focus_keeps_its_own_keys(opened):
    page = opened(make_view(make_run((4, 3, 3), q=0.5)))
    page.locator("#strip button").nth(2).click()
    page.focus("#rate")
    page.keyboard.press("ArrowRight")
    assert page.input_value("#rate-number") == "0.51"
    assert page.get_attribute("#strip button:nth-child(3)", "aria-current") == "true"


def test_it_begins_at_a_frame_that_shows_the_rule(opened):
    run = make_run((8, 4, 4), q=0.8)
    page = opened(make_view(run))
    counts = run.retention.num_tokens_per_frame.tolist()
    partial = next(frame for frame, count in enumerate(counts) if 0 < count < 16)
    assert page.get_attribute(f"#strip button:nth-child({partial + 1})", "aria-current") == "true"


def test_text_from_outside_is_text(opened):
    hostile = "</script><img src=x onerror=alert(1)><b>&amp; {{ 7 * 7 }}"
    run = make_run(label=hostile, note=hostile, model={"id": hostile})
    page = opened(make_view(run, make_run(label=hostile + "2", seed=1), notes=(hostile,)))
    assert page.inner_text("#notes li") == hostile
    assert hostile in page.inner_text("#compare")
    page.click("#provenance-box summary")
    assert hostile in page.inner_text("#provenance")
    assert page.locator("img").count() == 0


def test_compared_with_another_rate_method_and_run(opened):
    main, other = make_run((6, 4, 4), q=0.5), make_run((6, 4, 4), q=0.25, seed=5, label="other.pt")
    page = opened(make_view(main, other))
    uniform = RetentionRule("uniform-frames").retain(main.ranking, 0.5).retention_mask
    for choice, mask in [
        ("method uniform-frames", uniform),
        ("rate", main.ranking.at(0.75).retention_mask),
        ("run 1", other.ranking.at(0.25).retention_mask),
    ]:
        page.select_option("#compare", choice)
        page.locator("#strip button").nth(1).click()
        both = int((mask & main.retention.retention_mask).sum())
        text = page.inner_text("#comparison")
        assert f"keeps {int(mask.sum())}." in text
        assert f"Both keep {both};" in text
        cells = np.array(page.evaluate(READ_CELLS, ["#large-b", 4, 4, WHOLE])).mean(axis=1).reshape(4, 4) > 128
        np.testing.assert_array_equal(cells, mask[1].numpy())
    page.check("#difference")
    assert not page.is_visible("#figure-b")
    assert "only by A" in page.inner_text("#frame-legend")


def test_a_run_of_another_grid_stands_beside_and_is_not_laid_over(opened):
    page = opened(make_view(make_run((6, 4, 4)), make_run((3, 2, 5), label="other.pt")))
    page.select_option("#compare", "run 1")
    assert not page.is_visible("#difference-label")
    assert "Both keep" not in page.inner_text("#comparison")
    assert "its frame at" in page.inner_text("#caption-b")


def test_the_table_and_its_csv_hold_the_counts(opened):
    run = make_run((5, 3, 4), q=0.6)
    page = opened(make_view(run))
    page.click("#table-box summary")
    page.wait_for_selector("#table tr")
    counts = [int(text) for text in page.locator("#table td:nth-child(3)").all_inner_texts()]
    assert counts == run.retention.num_tokens_per_frame.tolist()
    with page.expect_download() as download:
        page.click("#csv")
    lines = download.value.path().read_text().splitlines()
    assert lines[0].startswith("frame,time (s),kept")
    assert [int(line.split(",")[2]) for line in lines[1:]] == counts


@pytest.mark.parametrize("region", [PixelRegion(), PixelRegion(0, 0.25, 1, 0.75), PixelRegion(-0.25, 0, 1.25, 1)])
def test_kept_cells_show_the_pixels_of_their_own_place(opened, tmp_path, region):
    """Each cell of the clip has its own colour; what is kept is that colour, what is dropped grey."""
    height, width = 4, 6
    rng = np.random.default_rng(0)
    colours = rng.integers(60, 256, (height, width, 3))
    colours[..., 0], colours[..., 1] = 230, 60 + 40 * (colours[..., 1] > 150)  # far from grey
    picture = np.zeros((320, 480, 3), dtype=np.uint8)
    for row in range(height):
        for column in range(width):
            top, left, bottom, right = region.cell(row, column, height, width)
            rows = slice(max(0, round(top * 320)), max(0, round(bottom * 320)))
            columns = slice(max(0, round(left * 480)), max(0, round(right * 480)))
            picture[rows, columns] = colours[row, column]
    path = tmp_path / "clip.mp4"
    write_video(path, numbers=range(4), store=lambda _: picture, pixel_format="yuv444p", options={"crf": "4"})
    run = make_run((4, height, width), q=0.6, region=region)
    page = opened(make_view(run, frames=SourceFrames.of(path)))
    box = [min(0, region.top), min(0, region.left), max(1, region.bottom), max(1, region.right)]
    # The region, in shares of the canvas, which shows the box.
    down, across = box[2] - box[0], box[3] - box[1]
    share = [(region.top - box[0]) / down, (region.left - box[1]) / across]
    share += [(region.bottom - box[0]) / down, (region.right - box[1]) / across]
    page.locator("#strip button").nth(1).click()
    mask = run.retention.retention_mask[1].numpy()
    cells = np.array(page.evaluate(READ_CELLS, ["#large-a", height, width, share])).reshape(height, width, 3)
    for row in range(height):
        for column in range(width):
            top, _, bottom, _ = region.cell(row, column, height, width)
            if (top + bottom) / 2 < 0 or (top + bottom) / 2 > 1:
                continue  # padding: black, kept or not
            if mask[row, column]:
                # H.264 and JPEG at high quality, in a cell of one colour: within 12 of 255 as measured (8).
                assert np.abs(cells[row, column] - colours[row, column]).max() < 12
            else:
                assert np.ptp(cells[row, column]) < 12
                assert cells[row, column].mean() < 0.5 * colours[row, column].mean()


def test_a_wide_page_and_a_narrow_one_have_nothing_beside_the_screen(browser, opened):
    page = opened(make_view(make_run((9, 4, 5)), notes=("A note that is long enough to wrap. " * 5,)))
    for width in (1280, 800, 360):
        page.set_viewport_size({"width": width, "height": 900})
        settle(page)
        assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_dark_and_light_are_heeded(opened):
    view = make_view()
    papers = [
        opened(view, color_scheme=scheme).evaluate("getComputedStyle(document.body).backgroundColor")
        for scheme in ("light", "dark")
    ]
    assert papers[0] != papers[1]


def test_every_control_has_a_name(opened):
    page = opened(make_view(make_run(), make_run(label="other.pt")))
    nameless = page.evaluate(
        """() => [...document.querySelectorAll('button, input, select')]
             .filter((each) => !(each.textContent.trim() || each.ariaLabel || each.labels?.length))
             .map((each) => each.id)"""
    )
    assert nameless == []


def test_frames_are_thinned_and_all_are_counted(opened):
    run = make_run((30, 3, 3), q=0.4)
    page = opened(make_view(run), max_frames=7)
    assert page.locator("#strip canvas").count() == 7
    assert "7 of 30 frames are drawn" in page.inner_text("#notes")
    page.click("#table-box summary")
    page.wait_for_selector("#table tr")
    assert page.locator("#table tr").count() == 30


def test_64_frames_of_noise_stay_below_the_bound(tmp_path):
    """Noise is the worst a JPEG can meet."""
    rng = np.random.default_rng(0)
    run = make_run((64, 16, 28))
    writer = PageWriter(make_view(run), tmp_path / "page.html", 64)
    for index in writer.frame_indices:
        writer.add(index, rng.integers(0, 256, (360, 640, 3), dtype=np.uint8))
    (path,) = writer.finish()
    assert path.stat().st_size < MAX_PAGE_BYTES


def test_the_same_view_gives_the_same_bytes(tmp_path):
    pages = []
    for name in ("a.html", "b.html"):
        writer = PageWriter(make_view(make_run(seed=4)), tmp_path / name, 64)
        pages.append(writer.finish()[0].read_bytes())
    assert pages[0] == pages[1]


def test_long_names_stay_on_a_narrow_page(opened):
    name = "a_name_without_a_space_" * 9
    main, other = make_run(label=name, model={"id": name}), make_run(label=name + "2", seed=1, note=name)
    page = opened(make_view(main, other, notes=(name,)))
    page.select_option("#compare", "run 1")
    page.click("#provenance-box summary")
    for width in (1280, 360):
        page.set_viewport_size({"width": width, "height": 900})
        settle(page)
        assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_a_name_that_is_no_utf8_is_shown(opened):
    page = opened(make_view(make_run(video={"name": "a\udcff.mp4", "sha256": "0"}, note="\udcff")))
    assert page.inner_text("#video") == "a\ufffd.mp4"


def test_a_frame_with_change_that_keeps_nothing_is_not_said_to_repeat(opened):
    """One token a frame, each with a score: what is dropped did change."""
    page = opened(make_view(make_run((5, 1, 1), q=0.7, seed=3)))
    assert page.inner_text("#sentence").endswith("4 of 5 frames keep nothing, because others change more.")


def test_the_open_table_follows_the_rate(opened):
    run = make_run((40, 3, 4), q=0.6)
    page = opened(make_view(run))
    page.click("#table-box summary")
    for q in (0.2, 0.9, 0.6):
        set_rate(page, q)
        settle(page)
        counts = [int(text) for text in page.locator("#table td:nth-child(3)").all_inner_texts()]
        assert counts == run.ranking.at(q).num_tokens_per_frame.tolist()
        shares = page.locator("#table td:nth-child(4)").all_inner_texts()
        assert shares == [f"{100 * count / 12:.1f}%" for count in counts]


def test_space_plays_from_the_chosen_frame_too(opened):
    page = opened(make_view(make_run((6, 3, 3), q=0.5)))
    page.locator("#strip button").nth(2).click()
    page.keyboard.press(" ")
    page.wait_for_selector("#strip button:nth-child(4)[aria-current=true]", timeout=5000)
    assert page.inner_text("#play") == "Stop"
    page.locator("#strip button").nth(0).focus()  # another frame is chosen by space, as any button is pressed
    page.keyboard.press(" ")
    assert page.get_attribute("#strip button:nth-child(1)", "aria-current") == "true"


def test_it_is_printed_light(opened):
    view = make_view(make_run((8, 3, 3)))
    looks = []
    for scheme in ("light", "dark"):
        page = opened(view, color_scheme=scheme)
        page.emulate_media(media="print", color_scheme=scheme)
        page.evaluate("window.dispatchEvent(new Event('beforeprint'))")
        settle(page)
        looks.append(page.screenshot())
        page.evaluate("window.dispatchEvent(new Event('afterprint'))")
        page.emulate_media(media="screen", color_scheme=scheme)
        settle(page)
    assert looks[0] == looks[1]
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(22, 24, 27)"
