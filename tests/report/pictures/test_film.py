"""The film, decoded again: how many frames, when, and which cells they show."""

from dataclasses import replace
from types import SimpleNamespace

import av
import numpy as np
import pytest
from cell_clips import draw_frame
from views_made import make_run, make_view

from evs_cli.core.pixel_region import PixelRegion
from evs_cli.errors import ArtifactError
from evs_cli.report.pictures.film import MAX_SIDE, FilmWriter
from evs_cli.report.pictures.overlay import PLAIN_GREY, OverlayGrid

# 4:2:0 halves the resolution of colour, and the film is compressed.
COLOUR_TOLERANCE = 24


def make_film(path, run, *, size=None, missing=(), max_frames=100):
    """Film of a run whose frames show its cells in colour, less ``missing``; no size draws without the video."""
    frames = None if size is None else SimpleNamespace(size=size)
    writer = FilmWriter(make_view(run, frames=frames), path, max_frames)
    if size is not None:
        for index in writer.frame_indices:
            if index not in missing:
                picture = draw_frame(index, size, run.token_grid_thw[1:], run.pixel_region.as_list())
                writer.add(index, picture)
    assert writer.finish() == [path]
    return path


def decoded(path):
    """Stream, frames as (H, W, 3), times and the seconds that each is shown."""
    with av.open(str(path)) as container:
        stream = container.streams.video[0]
        packets = [packet for packet in container.demux(stream) if packet.size]
    with av.open(str(path)) as container:
        frames = list(container.decode(video=0))
    facts = SimpleNamespace(
        size=(stream.height, stream.width), codec=stream.codec_context.name, format=stream.codec_context.pix_fmt
    )
    seconds = [float(packet.duration * packet.time_base) for packet in packets]
    return facts, [frame.to_ndarray(format="rgb24") for frame in frames], [frame.time for frame in frames], seconds


def assert_cells(picture, run, frame, size):
    """The middles of a frame's cells are in colour where kept, grey and darker where dropped."""
    grid_size = run.token_grid_thw[1:]
    grid = OverlayGrid.of(size, grid_size, run.pixel_region)
    drawn = draw_frame(frame, size, grid_size, run.pixel_region.as_list()).astype(int)
    mask = run.retention.retention_mask[frame].numpy()
    for row, column in np.ndindex(grid_size):
        y, x = ((place.start + place.stop) // 2 for place in grid.cell(row, column))
        true = drawn[y - grid.frame_top, x - grid.frame_left]
        seen = picture[y - 2 : y + 2, x - 2 : x + 2].reshape(-1, 3).mean(axis=0)
        if mask[row, column]:
            assert np.abs(seen - true).max() < COLOUR_TOLERANCE
        else:
            assert np.ptp(seen) < 10
            assert seen.max() < 0.5 * true.max()


@pytest.mark.parametrize(
    ("size", "region"),
    [
        ((360, 640), PixelRegion()),
        ((640, 361), PixelRegion()),
        ((361, 643), PixelRegion(0, 0.25, 1, 0.75)),
    ],
    ids=["landscape", "portrait", "odd and cropped"],
)
def test_a_film_shows_every_frame_at_its_time(tmp_path, size, region):
    run = make_run((6, 4, 5), region=region)
    run = replace(run, pts_seconds=np.array([0.2, 0.5, 1.1, 1.15, 4.0, 5.0]))
    facts, frames, times, seconds = decoded(make_film(tmp_path / "film.mp4", run, size=size))
    assert facts.codec == "h264"
    assert facts.format == "yuv420p"
    assert facts.size[0] % 2 == facts.size[1] % 2 == 0
    assert facts.size[1] - size[1] in (0, 1)
    assert len(frames) == 6
    assert np.allclose(times, run.pts_seconds - 0.2, atol=1e-4)
    assert np.allclose(seconds, [0.3, 0.6, 0.05, 2.85, 1.0, 1.0], atol=1e-4)
    for frame, picture in enumerate(frames):
        assert_cells(picture, run, frame, size)
        assert picture[size[0] + 8 :].max() > 200  # the line of text
    # Nothing of a frame is under the text.
    assert all((frames[0][: size[0]] != 20).any(axis=2).mean(axis=1) > 0.5)


def test_sides_are_bounded_and_small_videos_are_enlarged(tmp_path):
    big, *_ = decoded(make_film(tmp_path / "big.mp4", make_run((2, 4, 5)), size=(2160, 3840)))
    assert max(big.size) <= MAX_SIDE
    tall, *_ = decoded(make_film(tmp_path / "tall.mp4", make_run((2, 4, 5)), size=(3840, 2160)))
    assert max(tall.size) <= MAX_SIDE
    small, frames, *_ = decoded(make_film(tmp_path / "small.mp4", make_run((2, 4, 5)), size=(72, 128)))
    assert small.size[1] == 640
    assert frames[0].shape[:2] == small.size


def test_frames_that_do_not_decode_are_grey(tmp_path):
    run = make_run((5, 4, 5))
    _, frames, times, _ = decoded(make_film(tmp_path / "film.mp4", run, size=(360, 640), missing={0, 3}))
    assert times == [0, 0.5, 1, 1.5, 2]
    for index in (1, 2, 4):
        assert_cells(frames[index], run, index, (360, 640))
    assert np.abs(frames[0][:360].astype(int) - PLAIN_GREY).max() < 8  # kept whole
    assert np.ptp(frames[3][:350], axis=2).max() < 12


def test_without_the_video_masks_are_drawn_on_grey(tmp_path):
    run = make_run((3, 4, 5))
    facts, frames, *_ = decoded(make_film(tmp_path / "film.mp4", run))
    assert len(frames) == 3
    height, width = run.frame_size
    factor = -(-640 // max(height, width))
    assert facts.size[1] == width * factor
    assert np.abs(frames[0][: height * factor].astype(int) - PLAIN_GREY).max() < 8


def test_a_film_of_one_frame_is_shown_for_a_while(tmp_path):
    _, frames, times, seconds = decoded(make_film(tmp_path / "film.mp4", make_run((1, 4, 5)), size=(360, 640)))
    assert (len(frames), times, seconds) == (1, [0], [0.5])


def test_two_frames_of_one_time_stay_two(tmp_path):
    """A model that wants more frames than a clip has is given some twice."""
    run = replace(make_run((3, 4, 5)), pts_seconds=np.array([0, 0, 1.0]), frame_indices=np.array([0, 0, 1]))
    _, frames, times, _ = decoded(make_film(tmp_path / "film.mp4", run, size=(360, 640)))
    assert len(frames) == 3
    assert np.allclose(times, [0, 0, 1], atol=1e-4)


def test_times_that_no_encoder_takes_are_one_line_and_leave_no_file(tmp_path):
    run = replace(make_run((2, 4, 5)), pts_seconds=np.array([0, 3e6]), frame_indices=np.array([0, 1]))
    with pytest.raises(ArtifactError, match=r"a film of 3,000,000 s in 2 frames is refused by its encoder") as caught:
        make_film(tmp_path / "film.mp4", run, size=(360, 640))
    assert "sheet.png" in caught.value.hint
    assert not list(tmp_path.iterdir())


def test_thinning_keeps_the_times(tmp_path):
    _, frames, times, _ = decoded(make_film(tmp_path / "film.mp4", make_run((10, 4, 5)), size=(360, 640), max_frames=3))
    assert len(frames) == 3
    assert np.allclose(times, [0, 1.5, 3.0], atol=1e-4)


def test_the_same_film_twice(tmp_path):
    run = make_run((4, 4, 5))
    first, second = (make_film(tmp_path / name, run, size=(180, 320)) for name in ("a.mp4", "b.mp4"))
    assert first.read_bytes() == second.read_bytes()
