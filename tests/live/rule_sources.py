"""Which parts of a server's release each dialect's rules are read from: the list a maintainer goes through again."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Source:
    """Parts of one file of a wheel."""

    path: str
    """In the wheel."""
    names: tuple[str, ...]
    """Functions, classes, ``Class.method`` and constants; none is the whole file."""
    rule: str
    """What of a plan comes from there, and where evs has it."""


_MODELS = "vllm/model_executor/models"
_VIDEO_CLASSES = (
    *("VideoLoaderRegistry", "get_video_loader_backend_for_processor", "VideoLoader", "VideoBackend"),
    *("Qwen2VLVideoBackend", "Qwen3VLVideoBackend", "DynamicVideoBackend", "GLM46VVideoBackend"),
    "NemotronVLVideoBackend",
)
VLLM = (
    Source("vllm/multimodal/video.py", _VIDEO_CLASSES, "sampling: vllm_0_33*.py"),
    Source("vllm/multimodal/video_decoders/base.py", (), "sampling: what a decoder is told"),
    Source(
        "vllm/multimodal/video_decoders/opencv.py",
        (),
        "a file's frames and rate, frames that do not decode: opencv_frames.py",
    ),
    Source("vllm/multimodal/video_decoders/torchcodec.py", (), "the same with the other decoder"),
    Source("vllm/multimodal/media/video.py", ("VideoMediaIO",), "options of request and server: vllm_0_33_server.py"),
    Source("vllm/multimodal/media/base.py", ("MediaDecodedBudget",), "limit of decoded bytes: vllm_0_33_limits.py"),
    Source("vllm/multimodal/video_prune/evs.py", (), "K: core/counts.py"),
    Source("vllm/multimodal/encoder_budget.py", (), "encoder cache: vllm_0_33_limits.py"),
    Source("vllm/multimodal/processing/processor.py", (), "how placeholders become tokens: text.py"),
    Source("vllm/multimodal/processing/context.py", (), "what goes to transformers' processor"),
    Source(
        f"{_MODELS}/qwen2_vl.py",
        ("Qwen2VLMultiModalDataParser", "Qwen2VLProcessingInfo", "Qwen2VLMultiModalProcessor"),
        "Qwen: size, profiled item, text",
    ),
    Source(
        f"{_MODELS}/qwen2_5_vl.py",
        ("Qwen2_5_VLProcessingInfo", "Qwen2_5_VLMultiModalProcessor"),
        "Qwen2.5-VL: the same, pruned placeholders",
    ),
    Source(
        f"{_MODELS}/qwen3_vl.py",
        (
            *("Qwen3VLMultiModalDataParser", "Qwen3VLProcessingInfo", "Qwen3VLDummyInputsBuilder"),
            *("Qwen3VLMultiModalProcessor", "Qwen3VLForConditionalGeneration.recompute_mrope_positions"),
        ),
        "Qwen3-VL: times, spans, pruned placeholders, text before a video",
    ),
    Source(f"{_MODELS}/qwen3_5.py", ("Qwen3_5ProcessingInfo", "Qwen3_5MoeProcessingInfo"), "Qwen3.5"),
    Source(
        f"{_MODELS}/nano_nemotron_vl.py",
        ("NanoNemotronVLProcessingInfo", "NanoNemotronVLMultiModalProcessor"),
        "Nemotron: text, pruned placeholders",
    ),
    Source("vllm/transformers_utils/processors/nano_nemotron_vl.py", (), "Nemotron: size and times"),
    Source(
        f"{_MODELS}/glm4_1v.py",
        ("Glm4vProcessingInfo", "Glm4vDummyInputsBuilder", "Glm4vMultiModalProcessor"),
        "GLM: vllm_0_33_glm.py",
    ),
    Source(
        f"{_MODELS}/interns1.py",
        ("InternS1ProcessingInfo", "InternS1DummyInputsBuilder", "InternS1MultiModalProcessor"),
        "InternVL: vllm_0_33_internvl.py",
    ),
    Source(f"{_MODELS}/transformers/multimodal.py", ("MultiModalProcessingInfo", "MultiModalProcessor"), "GLM-4.6V"),
    Source(
        "vllm/entrypoints/generate/base/protocol.py",
        ("validate_request_mm_kwargs",),
        "--trust-request-mm-kwargs: vllm_0_33_server.py",
    ),
    Source(
        "vllm/envs.py",
        ("VLLM_MAX_IMAGE_PIXELS", "VLLM_MAX_MEDIA_REQUEST_DECODE_BYTES", "VLLM_VIDEO_LOADER_BACKEND"),
        "limits: vllm_0_33_limits.py",
    ),
    Source("vllm/engine/arg_utils.py", ("EngineArgs.get_batch_defaults",), "encoder cache: vllm_0_33_limits.py"),
)

_PROCESSORS = "sglang/srt/multimodal/processors"
SGLANG = (
    Source(
        f"{_PROCESSORS}/qwen_vl.py",
        (
            *("VIDEO_TOTAL_PIXELS", "VIDEO_MIN_PIXELS", "VIDEO_MAX_PIXELS", "FPS", "FPS_MIN_FRAMES", "FPS_MAX_FRAMES"),
            *("QWEN_VIDEO_PREPROCESS_CONFIG_KEYS", "smart_resize", "smart_nframes", "preprocess_video"),
            *("QwenVLImageProcessor.build_input_ids_with_timestamps", "QwenVLImageProcessor._process_mm_data_uncached"),
        ),
        "Qwen: sampling, size, text: sglang_0_5_23.py",
    ),
    Source(f"{_PROCESSORS}/glm4v.py", (), "GLM: sglang_0_5_23_glm.py"),
    Source(f"{_PROCESSORS}/nano_nemotron_vl.py", (), "Nemotron: sglang_0_5_23.py"),
    Source(
        f"{_PROCESSORS}/base_processor.py",
        ("BaseMultimodalProcessor.process_mm_data", "BaseMultimodalProcessor.process_and_combine_mm_data"),
        "what goes to transformers' processor",
    ),
    Source(
        "sglang/srt/multimodal/internvl_utils.py", ("get_video_target_size_and_feature_size",), "Nemotron: resize.py"
    ),
    Source("sglang/srt/multimodal/evs/evs_core.py", (), "K: core/counts.py"),
    Source("sglang/srt/multimodal/evs/evs_processor.py", (), "Nemotron's placeholders"),
    Source("sglang/srt/utils/video_decoder.py", ("VideoDecoderWrapper",), "a file's frames and rate"),
    Source("sglang/srt/utils/common.py", ("load_video", "sample_video_frames"), "Nemotron: sampling"),
    Source(
        "sglang/srt/parser/jinja_template_utils.py", ("process_content_for_template_format",), "options of requests"
    ),
)

SOURCES = {"vllm": VLLM, "sglang": SGLANG}
"""By the name of the distribution."""
