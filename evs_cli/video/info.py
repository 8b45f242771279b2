"""What a video file holds: size as shown, rate, and the time of every frame, without decoding more than one frame.

In: a path or a seekable binary file object. Out: a ``VideoInfo``, from which sampling and reading go on without
scanning the file again. One frame is decoded because only a frame carries the display matrix. Nothing here knows
of models; numpy and PyAV are all it needs.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

from evs_cli.errors import VideoError
from evs_cli.video.orientation import Orientation, frame_orientation
from evs_cli.video.packets import FloatArray, PacketIndex, as_stored, scan_packets
from evs_cli.video.source import VideoSource, libav_words, open_container, source_name, source_size_bytes

StreamChoice = Literal["best", "first"]
"""Which video stream of a file with several: the one that a player shows, or the first, be it a cover picture."""

_HDR_TRANSFERS = {16: "PQ", 18: "HLG"}  # ITU-T H.273, table 3
_CONTAINER_TICKS = 1_000_000  # a second, of libav's container durations
_MAX_PIXEL_STRETCH = 8  # a sample aspect ratio beyond 8:1 is damage, not a format


@dataclass(frozen=True, eq=False)
class VideoInfo:
    """A video stream and the file around it.

    Attributes:
        source: what was probed: a path or a file object, as given.
        name: the file's name without folders.
        size_bytes: the size of the file.
        container: libav's name of the container format, such as "mov,mp4,m4a,3gp,3g2,mj2".
        codec: libav's name of the codec, such as "h264".
        pixel_format: libav's name of the stored pixel format, such as "yuv420p10le".
        stream_index: which stream of the container this is.
        is_first_stream: whether no other video stream, cover pictures included, comes before it.
        width: pixels across as shown: turned upright and with square pixels.
        height: pixels down as shown.
        coded_width: pixels across as stored.
        coded_height: pixels down as stored.
        orientation: how a stored picture is turned and mirrored to be shown.
        sample_aspect_ratio: width of a stored pixel over its height; 1.0 when square or unknown.
        num_frames: frames that can be shown, by the packets in the file.
        header_num_frames: what the header claims; None when it claims nothing.
        average_fps: frames a second by the header; 0.0 when unknown.
        duration_seconds: from the first shown frame to the end of the last.
        container_seconds: length of the whole file by its header, sound included; None when it claims nothing.
        header_seconds: length of this stream by its header; None when it claims nothing.
        pts_seconds: (num_frames,) float64 ascending; the first shown frame is at 0.
        packets: the scan of the packets, which tells the reader where to seek.
        is_cut_off: whether the header claims more than there is, beyond what an edit list hides.
        warnings: short sentences on what a user of the pictures should know.
    """

    source: VideoSource
    name: str
    size_bytes: int
    container: str
    codec: str
    pixel_format: str
    stream_index: int
    is_first_stream: bool
    width: int
    height: int
    coded_width: int
    coded_height: int
    orientation: Orientation
    sample_aspect_ratio: float
    num_frames: int
    header_num_frames: int | None
    average_fps: float
    duration_seconds: float
    container_seconds: float | None
    header_seconds: float | None
    pts_seconds: FloatArray
    packets: PacketIndex
    is_cut_off: bool
    warnings: tuple[str, ...]

    @property
    def square_size(self) -> tuple[int, int]:
        """``(width, height)`` of a picture with square pixels, before it is turned."""
        return self.orientation.shown_size(self.width, self.height)

    def __repr__(self) -> str:
        return (
            f"VideoInfo({self.name!r}, {self.codec}, {self.width}x{self.height}, {self.num_frames} frames, "
            f"{self.duration_seconds:.3f} s)"
        )


@dataclass(frozen=True)
class _Picture:
    """What the first decoded frame tells: stored size in pixels, orientation and properties that earn a warning."""

    width: int
    height: int
    pixel_format: str
    orientation: Orientation
    transfer: int
    is_interlaced: bool


def probe_video(source: VideoSource, *, choice: StreamChoice = "best") -> VideoInfo:
    """Scan a video file: its packets, and one decoded frame.

    Args:
        source: a path or a seekable binary file object (which keeps its position).
        choice: the video stream to take, where there are several.

    Raises:
        VideoError: the file cannot be opened, holds no video stream, or no frame of it decodes.
        UsageError: the source is neither a path nor a seekable binary file object.
    """
    name, size_bytes = source_name(source), source_size_bytes(source)
    with open_container(source) as container:
        stream = video_stream(container, name, choice)
        rate = float(stream.average_rate or stream.guessed_rate or 0)
        as_stored(container)
        packets = scan_packets(container, stream, average_fps=rate)
        if packets is not None and not packets.stored.has_all_pts:
            packets = _with_made_up_pts(source, stream.index, rate, packets)
        if packets is None:
            raise VideoError(f"cannot decode {name}: its video stream ({stream.codec_context.name}) holds no frame")
        facts = {
            "container": container.format.name,
            "codec": stream.codec_context.codec.canonical_name,  # "av1", where the decoder is "libdav1d"
            "stream_index": stream.index,
            "is_first_stream": stream.index == container.streams.video[0].index,
            "sample_aspect_ratio": _sample_aspect_ratio(stream),
            "header_num_frames": stream.frames or None,
            "container_seconds": None if container.duration is None else container.duration / _CONTAINER_TICKS,
        }
        header_seconds = None if stream.duration is None else float(stream.duration * packets.time_base)
    picture = _first_picture(source, name, stream_index=facts["stream_index"])
    square_width = max(1, round(picture.width * facts["sample_aspect_ratio"]))
    width, height = picture.orientation.shown_size(square_width, picture.height)
    is_cut_off = _is_cut_off(packets, facts["header_num_frames"] or 0, header_seconds or 0.0)
    return VideoInfo(
        source=source,
        name=name,
        size_bytes=size_bytes,
        pixel_format=picture.pixel_format,
        width=width,
        height=height,
        coded_width=picture.width,
        coded_height=picture.height,
        orientation=picture.orientation,
        num_frames=len(packets.pts_ticks),
        average_fps=rate,
        duration_seconds=packets.end_seconds,
        header_seconds=header_seconds,
        pts_seconds=packets.pts_seconds,
        packets=packets,
        is_cut_off=is_cut_off,
        warnings=_warnings(packets, picture, facts["header_num_frames"] if is_cut_off else None, header_seconds or 0.0),
        **facts,
    )


def _with_made_up_pts(source: VideoSource, index: int, rate: float, stored: PacketIndex) -> PacketIndex | None:
    """The scan by the times that libav makes up, which the reader knows frames by; ``stored`` is as the file has it."""
    with open_container(source) as container:
        packets = scan_packets(container, container.streams[index], average_fps=rate)
    return None if packets is None else replace(packets, stored=stored.stored)


def video_stream(container: Any, name: str, choice: StreamChoice = "best") -> Any:
    """A video stream of an open container: the one that a player would show, or the first.

    Raises:
        VideoError: there is none (a cover picture is not one), or libav has no decoder for it.
    """
    import av

    films = [stream for stream in container.streams.video if choice == "first" or not _is_cover(stream, av)]
    if container.format.name == "tty":  # libav draws any .txt as a film of a terminal
        raise VideoError(f"cannot open {name}: it is a text file, not a video")
    if not films:
        raise VideoError(f"cannot decode {name}: no video stream found ({_found_streams(container)})")
    best = container.streams.best("video") if choice == "best" else None
    stream = next((film for film in films if best is not None and film.index == best.index), films[0])
    if stream.codec_context is None:
        raise VideoError(f"cannot decode {name}: libav has no decoder for its video codec")
    return stream


def _is_cover(stream: Any, av: Any) -> bool:
    return bool(stream.disposition & av.stream.Disposition.attached_pic)


def _found_streams(container: Any) -> str:
    found = ["a cover picture" if stream.type == "video" else stream.type for stream in container.streams]
    return "found: " + ", ".join(found) if found else "the container is empty"


def _sample_aspect_ratio(stream: Any) -> float:
    ratio = float(stream.sample_aspect_ratio or 1)
    return ratio if 1 / _MAX_PIXEL_STRETCH <= ratio <= _MAX_PIXEL_STRETCH else 1.0


def _first_picture(source: VideoSource, name: str, *, stream_index: int) -> _Picture:
    import av

    reason = "its packets hold no complete picture"
    with open_container(source) as container:
        stream = container.streams[stream_index]
        try:
            for packet in container.demux(stream):
                try:
                    for frame in packet.decode():
                        return _picture_of(frame, stream.codec_context)
                except av.error.FFmpegError as error:
                    reason = libav_words(error)
        except av.error.FFmpegError as error:
            reason = libav_words(error)
    raise VideoError(f"cannot decode {name}: no frame of it decodes ({reason})")


def _picture_of(frame: Any, decoder: Any) -> _Picture:
    return _Picture(
        width=frame.width,
        height=frame.height,
        pixel_format=frame.format.name,
        orientation=frame_orientation(frame),
        # CheckSubject of the decoder, which has read it by now: before PyAV 17 a frame does not tell it.
        transfer=int(decoder.color_trc),
        is_interlaced=bool(frame.interlaced_frame),
    )


def _is_cut_off(packets: PacketIndex, header_num_frames: int, header_seconds: float) -> bool:
    """Whether frames that the header claims are gone; it also counts those that an edit list hides.

    Only the duration tells the one from the other.
    """
    num_stored = len(packets.pts_ticks) + packets.num_discarded
    return header_num_frames > num_stored and header_seconds > packets.end_seconds + 2 * packets.last_frame_seconds


def _warnings(
    packets: PacketIndex, picture: _Picture, claimed_num_frames: int | None, header_seconds: float
) -> tuple[str, ...]:
    """Sentences; ``claimed_num_frames`` is the header's count where frames of it are gone, else None."""
    found = []
    if picture.transfer in _HDR_TRANSFERS:
        found.append(f"the video is HDR ({_HDR_TRANSFERS[picture.transfer]}) and is not tone mapped: colours look pale")
    if picture.is_interlaced:
        found.append("the video is interlaced: a frame holds both fields, so motion shows combs")
    if not picture.orientation.is_exact:
        found.append("the display matrix is no multiple of a quarter turn: the nearest one is shown")
    if packets.read_error is not None:
        found.append(f"the file cannot be read to its end ({packets.read_error})")
    if claimed_num_frames is not None:
        num_stored = len(packets.pts_ticks) + packets.num_discarded
        claim = f"{claimed_num_frames} frames, {header_seconds:.1f} s"
        there = f"{num_stored}, {packets.end_seconds:.1f} s are there"
        found.append(f"the file seems cut off: its header claims {claim}; {there}")
    return tuple(found)
