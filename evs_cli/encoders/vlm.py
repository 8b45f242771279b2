"""What the vision-language families share: a plan from the checkpoint's own processor, and its vision part.

The processor is called on tensors of the meta device, which have a shape and no pixels, and is told the true
times: a rate of 1000 and the presentation times in milliseconds as frame indices. A family's own file says which
markup stands for a video, which options it has, and what is particular about its features.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import numpy.typing as npt

from evs_cli.core.counts import TokenGrid
from evs_cli.core.placeholders import IntArray, SequenceLayout
from evs_cli.encoders.base import (
    Clip,
    EncodeOptions,
    EncodePlan,
    FloatArray,
    VideoEncoder,
    require_same_count,
)
from evs_cli.encoders.loading import load_processor, load_vision_part
from evs_cli.encoders.processor_files import ProcessorFiles, read_processor
from evs_cli.encoders.segments import Segment, segment_ids
from evs_cli.encoders.weights import WeightsRead
from evs_cli.errors import ModelError, UsageError
from evs_cli.video.sampling import DEFAULT_FPS, DEFAULT_MAX_FRAMES, SamplingDefaults

if TYPE_CHECKING:
    import torch

_MAX_KNOWN_TEXTS = 50_000  # about 25 MB: the times of several hours of video


class VisionLanguageEncoder(VideoEncoder):
    """A vision-language checkpoint: its processor plans, its vision tower and projector encode."""

    unused_configs: ClassVar[tuple[str, ...]] = ()
    """Optional sub-configurations that a video has no use for, such as ``audio_config``."""
    modality: ClassVar[str] = "video"
    """Whose token the placeholders are, and the key of the features in the model's ``mm_encoder_outputs``."""
    rows_before_frame: ClassVar[int] = 0
    """Extra rows in front of each frame's grid tokens."""
    rows_behind_video: ClassVar[int] = 0
    """Extra rows behind the last frame's grid tokens."""
    features_are_batched: ClassVar[bool] = False
    """See ``EncodePlan``."""
    _model: Any = None

    @cached_property
    def processor(self) -> Any:
        """The checkpoint's processor; read once, on first use.

        Raises:
            ModelError: it cannot be loaded, or its files are out of reach.
        """
        self.source.require_files()
        return load_processor(self.source)

    @cached_property
    def plan_processor(self) -> Any:
        """What plans ask: the processor as its files tell it where only counts are wanted, else the processor."""
        return (read_processor(self.source) if self.counts_alone else None) or self.processor

    @property
    def video_processor_class(self) -> str:
        """The name of the class of its video processor."""
        files = self.plan_processor
        return files.video_class if isinstance(files, ProcessorFiles) else type(files.video_processor).__name__

    @property
    def sampling_defaults(self) -> SamplingDefaults:
        """The video processor's own rate or count with its limits, else 2 fps up to its maximum or 128."""
        video = self.plan_processor.video_processor
        num_frames, fps = getattr(video, "num_frames", None), getattr(video, "fps", None)
        return SamplingDefaults(
            fps=None if num_frames else float(fps or DEFAULT_FPS),
            num_frames=num_frames,
            max_frames=getattr(video, "max_frames", None) or DEFAULT_MAX_FRAMES,
            min_frames=getattr(video, "min_frames", None),
        )

    @property
    def temporal_patch_size(self) -> int:
        """Sampled frames that become one frame of tokens."""
        return int(self.plan_processor.video_processor.temporal_patch_size)

    @property
    def video_markup(self) -> str:
        """The text that stands for one video in the family's prompts; the processor's own token, as here, for most."""
        return str(self.plan_processor.video_token)

    @property
    def placeholder_token(self) -> str:
        """The token, as text, that stands for one video token once the markup is expanded: that of the modality."""
        return str(self.plan_processor.image_token if self.modality == "image" else self.plan_processor.video_token)

    @abstractmethod
    def _expand(self, clip: Clip, options: EncodeOptions, frame_size: tuple[int, int] | None) -> EncodePlan:
        """The plan of a clip whose frames are enough for one tubelet."""

    def plan(self, clip: Clip, options: EncodeOptions, *, frame_size: tuple[int, int] | None = None) -> EncodePlan:
        """See ``VideoEncoder.plan``; reads the processor and tokenizer, no weights."""
        self.check_options(options)
        return self._expand(clip, options, frame_size)

    def prompt_text(self, options: EncodeOptions, num_videos: int = 1) -> str:
        """The text before expansion: the chat prompt around the videos' markup, or the markup alone."""
        if options.prompt is None:
            return self.video_markup * num_videos
        for token in {self.placeholder_token, self.plan_processor.video_token, self.plan_processor.image_token}:
            named = {"prompt": options.prompt, "system": options.system or ""}
            if holder := next((name for name, text in named.items() if token in text), None):
                raise UsageError(
                    f"Invalid {holder}: it holds {token}, which {self.source.name} reads as part of a video or image. "
                    "Expected plain text; evs puts the video in front of it."
                )
        if not self.has_chat_template:
            raise ModelError(
                f"cannot build a prompt for {self.source.name}: it has no chat template.",
                hint="Leave out --prompt; the sequence is then the video's part alone.",
            )
        text = self._chat_text(options.prompt, options.system, num_videos)
        num_written = text.count(self.plan_processor.video_token)
        faults = {
            "leaves the video out": num_written < num_videos,
            "writes the video more than once": num_written > num_videos,
            "leaves the prompt out": options.prompt.strip() not in text,
            "leaves the system message out": (options.system or "").strip() not in text,
        }
        for fault, is_so in faults.items():
            if is_so:
                raise ModelError(
                    f"cannot build a prompt for {self.source.name}: its chat template {fault}.",
                    hint="Leave out --prompt; the sequence is then the video's part alone.",
                )
        return text

    def tokenizer_arguments(self, text: str) -> dict[str, bool]:
        """Whether the tokenizer adds its start token to ``text``, before expansion, as transformers decides it.

        Not where a chat template has written it already, as ``apply_chat_template(tokenize=True)`` sees to; and not
        to the video's part alone, which is a piece of a sequence.
        """
        start = self.plan_processor.tokenizer.bos_token
        is_piece = not text.replace(self.video_markup, "")
        has_start = start is not None and text.startswith(start)
        return {"add_special_tokens": False} if is_piece or has_start else {}

    @cached_property
    def _ids_by_text(self) -> dict[str, list[int]]:
        return {}

    def text_ids(self, texts: Sequence[str]) -> list[list[int]]:
        """Ids of each text by itself, without a start token. Do not change them: they are kept for the next call.

        The plans of one video under several servers, and of its longer and shorter versions, write the same times and
        markers thousands of times, so each distinct text is tokenized once, and all new ones in one call.
        """
        known = self._ids_by_text
        if len(known) > _MAX_KNOWN_TEXTS:  # a new one: another thread may be reading the old one
            known = self._ids_by_text = {}
        new = [text for text in dict.fromkeys(texts) if text and text not in known]
        if new:
            known.update(
                zip(new, self.plan_processor.tokenizer(new, add_special_tokens=False)["input_ids"], strict=True)
            )
        return [known[text] if text else [] for text in texts]

    def text_tokens(self, options: EncodeOptions, num_videos: int = 1) -> int:
        """See ``VideoEncoder.text_tokens``."""
        if options.prompt is None:
            return 0
        text = self.prompt_text(options, num_videos)
        ids = self.plan_processor.tokenizer(text, **self.tokenizer_arguments(text))["input_ids"]
        (markup,) = self.text_ids([self.video_markup])
        return len(ids) - num_videos * len(markup)

    def request_length(self, parts: Sequence[Sequence[int]], options: EncodeOptions) -> int:
        """See ``VideoEncoder.request_length``: the parts are put into the text, which is tokenized as one."""
        tokenizer = self.plan_processor.tokenizer
        texts = [tokenizer.decode(ids, clean_up_tokenization_spaces=False) for ids in parts]
        again = tokenizer(texts, add_special_tokens=False)["input_ids"]
        if [list(ids) for ids in parts] != again:  # a tokenizer whose text does not say its ids
            return self.text_tokens(options, len(parts)) + super().request_length(parts, options)
        text = self.prompt_text(options, len(parts))
        before, *behind = text.split(self.video_markup)
        whole = before + "".join(part + after for part, after in zip(texts, behind, strict=True))
        return len(tokenizer(whole, **self.tokenizer_arguments(text))["input_ids"])

    def _chat_text(self, prompt: str, system: str | None, num_videos: int) -> str:
        """The chat template's text for videos and a prompt, behind a system message where there is one."""
        from jinja2 import TemplateError

        messages: list[dict[str, Any]] = [{"role": "system", "content": system}] if system else []
        videos = [{"type": "video"}] * num_videos
        messages.append({"role": "user", "content": [*videos, {"type": "text", "text": prompt}]})
        try:
            text: str = self.plan_processor.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
        except (TemplateError, TypeError) as error:
            raise ModelError(
                f"cannot build a prompt for {self.source.name}: its chat template fails ({error}).",
                hint="Leave out --prompt; the sequence is then the video's part alone.",
            ) from error
        return text

    def expanded_ids(self, text: str, expanded: str) -> list[int]:
        """Ids of a prompt with the video written out: ``expanded`` in place of its markup in ``text``."""
        whole = text.replace(self.video_markup, expanded, 1)
        ids: list[int] = self.plan_processor.tokenizer(whole, **self.tokenizer_arguments(text))["input_ids"]
        return ids

    def sequence_ids(self, text: str, segments: Sequence[Segment], placeholder: str) -> IntArray:
        """(L,) int64 ids of a sequence in segments, behind the start token where the tokenizer adds one to ``text``.

        Args:
            text: the prompt before expansion.
            segments: the prompt expanded; texts that are tokenized together are one segment.
            placeholder: text of the token that the runs repeat.
        """
        placeholder_id = int(self.plan_processor.tokenizer.convert_tokens_to_ids(placeholder))
        return segment_ids(segments, self.text_ids, placeholder_id, self._start_ids(text))

    def num_text_ids(self, text: str, segments: Sequence[Segment]) -> int:
        """How many ids of such a sequence are no placeholder; arguments as ``sequence_ids``."""
        texts = [segment for segment in segments if isinstance(segment, str)]
        return len(self._start_ids(text)) + sum(map(len, self.text_ids(texts)))

    def _start_ids(self, text: str) -> list[int]:
        """What the tokenizer puts in front of ``text``."""
        ids: list[int] = self.plan_processor.tokenizer("", **self.tokenizer_arguments(text))["input_ids"]
        return ids

    def layout(self, input_ids: npt.ArrayLike, token_grid_thw: TokenGrid) -> SequenceLayout:
        """The layout of an expanded sequence: which placeholders are grid tokens, and which are extra rows."""
        num_frames, height, width = token_grid_thw
        placeholder_id = int(self.plan_processor.tokenizer.convert_tokens_to_ids(self.placeholder_token))
        ids: IntArray = np.asarray(input_ids, dtype=np.int64)
        positions: IntArray = np.flatnonzero(ids == placeholder_id).astype(np.int64)
        in_frames = num_frames * (self.rows_before_frame + height * width)
        expected = in_frames + self.rows_behind_video
        require_same_count(len(positions), expected, self.source, f"placeholders {self.placeholder_token}")
        frames = positions[:in_frames].reshape(num_frames, -1)
        before = frames[:, : self.rows_before_frame].ravel()
        return SequenceLayout(
            input_ids=ids,
            token_positions=frames[:, self.rows_before_frame :].ravel(),
            extra_positions=np.concatenate([before, positions[in_frames:]]),
            num_frames=num_frames,
            placeholder_token_id=placeholder_id,
        )

    def plan_sequence(
        self,
        clip: Clip,
        *,
        frame_size: tuple[int, int],
        token_grid_thw: TokenGrid,
        input_ids: npt.ArrayLike,
        prompt_seconds: FloatArray,
        seconds_per_grid: float | None = None,
        loader_size: tuple[int, int] | None = None,
        loader_interpolation: str | None = None,
    ) -> EncodePlan:
        """The plan of a clip whose size, ids and times are settled by a server's rules and not by the processor.

        Args:
            clip: the sampled frames, with their true times.
            frame_size: (height, width) in pixels that is cut into patches.
            token_grid_thw: tokens in time, height, width.
            input_ids: (L,) the unpruned sequence.
            prompt_seconds: (T,) float64, times as the model is told them.
            seconds_per_grid: see ``EncodePlan``.
            loader_size: see ``EncodePlan``.
            loader_interpolation: see ``EncodePlan``.

        Raises:
            ModelError: ids whose placeholders are not the grid's.
        """
        num_frames, height, width = token_grid_thw
        merge = self.spatial_merge_size
        layout = self.layout(input_ids, token_grid_thw)
        return EncodePlan(
            frame_size=frame_size,
            token_grid_thw=token_grid_thw,
            model_grid_thw=(num_frames, height * merge, width * merge),
            spatial_merge_size=merge,
            temporal_patch_size=self.temporal_patch_size,
            layout=layout,
            pts_seconds=clip.pts_seconds,
            prompt_seconds=prompt_seconds,
            seconds_per_grid=seconds_per_grid,
            token_type_ids=self.token_type_ids(layout),
            loader_size=loader_size,
            loader_interpolation=loader_interpolation,
            modality=self.modality,
            features_are_batched=self.features_are_batched,
        )

    @property
    def outer_tokens(self) -> int:
        """See ``VideoEncoder.outer_tokens``: what stands with the video's token in its markup."""
        return sum(map(len, self.text_ids(self.video_markup.split(str(self.plan_processor.video_token)))))

    @property
    def has_chat_template(self) -> bool:
        """Whether the checkpoint says how a chat is written."""
        return bool(getattr(self.plan_processor, "chat_template", None))

    @property
    def spatial_merge_size(self) -> int:
        """Side of the square of patches that becomes one token; of the families that ``plan_sequence`` serves."""
        raise NotImplementedError

    def token_type_ids(self, layout: SequenceLayout) -> IntArray | None:
        """(L,) modality of each id (0 text, 2 video) for families whose positions depend on it; None for others."""
        return None

    def load(self, device: str, dtype: torch.dtype) -> WeightsRead:
        """See ``VideoEncoder.load``; the language layers stay on disk."""
        self._model, account = load_vision_part(self.source, device, dtype, unused_configs=self.unused_configs)
        return account

    def to_grid(self, rows: torch.Tensor, plan: EncodePlan) -> torch.Tensor:
        """``(t, h, w, D)`` from ``(t * h * w, D)`` rows of a chunk."""
        _, height, width = plan.token_grid_thw
        if rows.shape[0] % (height * width):
            raise ModelError(
                f"cannot place the tokens of {self.source.name}: {rows.shape[0]} came of a chunk. "
                f"Expected a multiple of {height} x {width}, as planned."
            )
        return rows.reshape(-1, height, width, rows.shape[-1])
