"""What all families share when they call transformers: quiet logs, errors in our words, the vision part alone."""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from evs_cli.encoders.source import ModelSource
from evs_cli.encoders.weights import WeightsRead, is_vision_tensor, read_vision_tensors
from evs_cli.errors import EvsError, ModelError, first_line

if TYPE_CHECKING:
    import torch


@contextlib.contextmanager
def quiet_transformers() -> Iterator[None]:
    """Keep transformers' progress bars and warnings off the terminal, unless evs itself logs at DEBUG (``-vv``)."""
    if logging.getLogger("evs_cli").isEnabledFor(logging.DEBUG):
        yield
        return
    _hush(1)
    try:
        yield
    finally:
        _hush(-1)


_hushed = 0  # who wants quiet now: two threads may, and the last one to leave puts back what the first one found
_hushed_lock = threading.Lock()
_found: tuple[int, bool] = (0, False)


def _hush(change: int) -> None:
    """Count one more or less that wants quiet; the first turns the library's own settings down, the last up again."""
    global _hushed, _found
    from transformers.utils import logging as library_logging

    with _hushed_lock:
        _hushed += change
        if change > 0 and _hushed == 1:
            _found = library_logging.get_verbosity(), library_logging.is_progress_bar_enabled()
            library_logging.set_verbosity_error()
            library_logging.disable_progress_bar()
        elif _hushed == 0:
            library_logging.set_verbosity(_found[0])
            if _found[1]:
                library_logging.enable_progress_bar()


@contextlib.contextmanager
def loading_errors(source: ModelSource) -> Iterator[None]:
    """Turn what transformers, safetensors and the hub raise while loading into a ``ModelError``."""
    from huggingface_hub.errors import HfHubHTTPError
    from safetensors import SafetensorError

    try:
        yield
    except EvsError:
        raise
    except ImportError as error:
        raise ModelError(
            f"cannot load {source.name}: {_first_line(error)}.", hint="pip install the package."
        ) from error
    except (OSError, ValueError, KeyError, RuntimeError, SafetensorError, HfHubHTTPError) as error:
        raise ModelError(
            f"cannot load {source.name} ({source.model_type}): {_first_line(error)}",
            hint="Check that its files are whole, and the transformers version; --debug shows the whole error.",
        ) from error


def load_vision_part(
    source: ModelSource, device: str, dtype: torch.dtype, *, unused_configs: Sequence[str] = ()
) -> tuple[Any, WeightsRead]:
    """The model without its language layers: vision tower and projector; the token embedding is a stub of one row.

    A text model of zero layers is transformers' own configuration, so the features are the whole model's, bit for
    bit. Only the vision part's tensors are read, and only the shards that hold them are fetched.

    Args:
        source: the checkpoint.
        device: where the model goes.
        dtype: of its parameters.
        unused_configs: names of optional sub-configurations that are left out, such as ``audio_config``.

    Raises:
        ModelError: files that are missing or damaged, or a vision tensor that no file holds.
    """
    import transformers

    with loading_errors(source), quiet_transformers():
        config = transformers.AutoConfig.from_pretrained(source.location, **source.pretrained_arguments())
        _shrink_text(config, unused_configs)
        read = read_vision_tensors(source)
        if read is None:  # an old checkpoint in torch's own format, which is read whole
            raise ModelError(
                f"cannot load {source.name}: it has no safetensors files. Expected model.safetensors or its shards.",
                hint="Convert it: load it with transformers and save_pretrained it again.",
            )
        tensors, account = read
        model_class = _model_class(config)
        model, info = model_class.from_pretrained(
            None, config=config, state_dict=tensors, dtype=dtype, output_loading_info=True
        )
        refuse_missing(source, [key for key in info["missing_keys"] if is_vision_tensor(key)])
        return model.to(device).eval(), account


def weightless_model(source: ModelSource, *, unused_configs: Sequence[str] = ()) -> Any:
    """As ``load_vision_part``, on the meta device: no weights are read, and it computes nothing but from its config.

    Raises:
        ModelError: a configuration that cannot be read.
    """
    import torch
    import transformers

    with loading_errors(source), quiet_transformers():
        config = transformers.AutoConfig.from_pretrained(source.location, **source.pretrained_arguments())
        _shrink_text(config, unused_configs)
        with torch.device("meta"):
            return _model_class(config)(config)


def refuse_missing(source: ModelSource, missing: Iterable[str]) -> None:
    """Raise ``ModelError`` where tensors of the vision part came from no file: transformers makes them up at random."""
    names = sorted(missing)
    if names:
        raise ModelError(
            f"cannot load {source.name}: {len(names)} tensors of its vision part are missing, such as {names[0]}.",
            hint="Its files may be incomplete or another model's; fetch them again.",
        )


def _shrink_text(config: Any, unused_configs: Sequence[str]) -> None:
    """Take out the language layers, all but one row of the token embedding, and unused sub-configurations."""
    text = config.get_text_config()
    for name in ("layer_types", "layers_block_type", "mlp_layer_types"):
        if getattr(text, name, None):
            setattr(text, name, [])
    text.num_hidden_layers = 0
    text.vocab_size = 1
    for part in (config, text):
        part.pad_token_id = None  # it would be a row of the embedding that is not there
    for name in unused_configs:
        setattr(config, name, None)


def _model_class(config: Any) -> Any:
    """The class without a language head where transformers has one, else the class with it."""
    import transformers

    for mapping in (transformers.MODEL_MAPPING, transformers.MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING):
        if type(config) in mapping:
            return mapping[type(config)]
    raise ValueError(f"transformers {transformers.__version__} has no model for {type(config).__name__}")


def load_processor(source: ModelSource) -> Any:
    """The checkpoint's processor: tokenizer, chat template and video processor."""
    from transformers import AutoProcessor

    with loading_errors(source), quiet_transformers():
        return AutoProcessor.from_pretrained(source.location, **source.pretrained_arguments())


def load_tokenizer(source: ModelSource) -> Any:
    """The checkpoint's tokenizer, of a family that has no processor."""
    from transformers import AutoTokenizer

    with loading_errors(source), quiet_transformers():
        return AutoTokenizer.from_pretrained(source.location, **source.pretrained_arguments())


def _first_line(error: Exception) -> str:
    """The first line of an error's text, without a full stop at its end, in our words where they are plainer."""
    text = first_line(error)
    if "ignore_mismatched_sizes" in str(error) or "mismatch" in text.lower():
        return "its weights do not have the shapes that its config.json says"
    return text[:300].rstrip(".: ")


def of_one_video(rows: Any) -> torch.Tensor:
    """The rows of the one video or image of a call, as a tensor.

    By family and release, transformers puts a tensor in ``pooler_output`` and each DeepStack level, or a sequence of
    one tensor a video: SmolVLM and LLaVA-NeXT-Video changed in 5.20.2, Qwen3-VL's levels in 5.18.
    """
    tensor: torch.Tensor = rows[0] if isinstance(rows, (tuple, list)) else rows
    return tensor


def on_device(values: torch.Tensor, model: Any) -> torch.Tensor:
    """Floats on a model's device in its dtype; from pinned memory the copy runs beside what the device does."""
    moved: torch.Tensor = values.to(model.device, non_blocking=True).to(model.dtype)
    return moved
