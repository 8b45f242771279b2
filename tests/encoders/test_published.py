"""Counts by published figures, where neither the hub nor its cache has a model's files."""

import json

import pytest
import transformers as tf
from fresh_python import ROOT, run_evs
from published_configs import QWEN2_5_VL_7B, QWEN3_VL_8B
from served_models import QWEN3, QWEN25

import evs_cli
from evs_cli import NumbersRequest
from evs_cli.dialects.model import served_model
from evs_cli.encoders.estimated_tokenizer import NO_ID, EstimatedTokenizer
from evs_cli.encoders.published import PUBLISHED, QWEN_TOKENS
from evs_cli.encoders.registry import open_encoder
from evs_cli.encoders.source import SHORT_NAMES, resolve_model
from evs_cli.errors import ModelError, UsageError
from evs_cli.jobs.check_plan import plan_clip
from evs_cli.jobs.opened_models import forget_models
from evs_cli.pipeline.request import make_request

KNOWN = ("qwen2.5-vl-7b", "qwen3-vl-8b")
CHECKPOINTS = {"qwen2.5-vl-7b": "qwen2_5_vl", "qwen3-vl-8b": "qwen3_vl"}
DIALECTS = ("evs", "hf", "vllm", "sglang")
SAMPLE = str(ROOT / "samples" / "crossing.mp4")


@pytest.fixture(autouse=True)
def _no_hub(tmp_path, monkeypatch):
    """An empty cache and no way to the hub."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "empty"))
    forget_models()
    yield
    forget_models()


def test_every_known_model_has_a_short_name():
    assert sorted(PUBLISHED) == sorted(SHORT_NAMES[name] for name in KNOWN)


@pytest.mark.parametrize(("name", "model"), [("qwen2.5-vl-7b", QWEN25), ("qwen3-vl-8b", QWEN3)])
def test_the_rules_read_the_published_limits(name, model):
    assert served_model(open_encoder(name, counts_alone=True))[1] == model


@pytest.mark.parametrize(("name", "sizes"), [("qwen2.5-vl-7b", QWEN2_5_VL_7B), ("qwen3-vl-8b", QWEN3_VL_8B)])
def test_costs_are_those_of_the_published_configuration(name, sizes):
    config = PUBLISHED[SHORT_NAMES[name]].config
    assert {key: config[key] for key in sizes} == sizes


def test_ids_are_the_classes_own():
    for config in (tf.Qwen2_5_VLConfig(), tf.Qwen3VLConfig()):
        own = PUBLISHED[SHORT_NAMES["qwen2.5-vl-7b" if config.model_type == "qwen2_5_vl" else "qwen3-vl-8b"]].config
        for field in ("image_token_id", "video_token_id", "vision_start_token_id", "vision_end_token_id"):
            assert own[field] == getattr(config, field), field
            token = f"<|{field.removesuffix('_token_id')}{'' if 'vision' in field else '_pad'}|>"
            assert QWEN_TOKENS[token] == own[field]


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("name", KNOWN)
def test_the_videos_part_is_that_of_the_files(served_checkpoint, name, dialect):
    """Sizes, frames, markers and times, with a tokenizer that cuts times as Qwen's does."""
    folder = str(served_checkpoint(CHECKPOINTS[name]))
    for model in (folder, name):
        assert evs_cli.plan_video(SAMPLE, q=0.0, model=model, dialect=dialect).total_tokens > 0
    ours, theirs = (evs_cli.plan_video(SAMPLE, q=0.0, model=model, dialect=dialect) for model in (name, folder))
    for field in ("frames", "frame_size", "token_grid_thw", "total_tokens", "separator_tokens", "outer_tokens"):
        assert getattr(ours, field) == getattr(theirs, field), field
    assert ours.rates[0].sequence_length == theirs.rates[0].sequence_length
    assert [note for note in ours.notes if "estimated" in note] == list(ours.notes[:1])
    assert "evs models fetch" in ours.notes[0]


@pytest.mark.parametrize(("duration", "tokens"), [(1.0, 456 / 2), (10.0, 2280)])
def test_counts_that_a_running_server_gave(duration, tokens):
    """vLLM with Qwen3-VL: 2,280 prompt tokens of ten seconds of 360p, as it was measured in public."""
    video = NumbersRequest(height=360, width=640, duration_seconds=duration, source_fps=30.0)
    report = evs_cli.plan_video(video, q=0.0, model="qwen3-vl-8b", dialect="vllm")
    counted = report.total_tokens + report.separator_tokens - report.outer_tokens
    assert counted == tokens * (2 if duration == 1.0 else 1)


def test_a_chat_is_as_long_as_its_template_makes_it():
    """23 ids around the video by Qwen's real vocabulary: 11 of the system message, 3, the 4 of the words, 2 and 3."""
    report = evs_cli.plan_video(SAMPLE, q=0.0, model="qwen2.5-vl-7b", prompt="What happens here?")
    assert report.text_tokens == 11 + 3 + 4 + 2 + 3
    report = evs_cli.plan_video(SAMPLE, q=0.0, model="qwen3-vl-8b", prompt="What happens here?")
    assert report.text_tokens == 3 + 4 + 2 + 3
    report = evs_cli.plan_video(SAMPLE, q=0.0, model="qwen3-vl-8b", prompt="Why?", system="Be brief.")
    assert report.text_tokens == 5 + 1 + 2 + 3 + 3 + 2 + 2


# Counted with the vocabulary of the PyPI wheel dashscope 1.25 (qwen.tiktoken).
REAL = {
    "<0.2 seconds>": 6,
    "<12.3 seconds>": 7,
    "<3599.9 seconds>": 9,
    "system\nYou are a helpful assistant.": 8,
    "Describe the video in detail, including every person and object that appears in it.": 16,
    "How many times does the ball bounce? Answer with a number: 12345.": 20,
}


@pytest.mark.parametrize("text", REAL)
def test_texts_of_known_pieces_are_exact(text):
    ids = EstimatedTokenizer(QWEN_TOKENS)(text)["input_ids"]
    assert ids == [NO_ID] * REAL[text]


def test_other_scripts_are_an_estimate():
    """7 by the real vocabulary."""
    assert 5 <= len(EstimatedTokenizer(QWEN_TOKENS)("请详细描述这个视频的内容。")["input_ids"]) <= 12


def test_special_tokens_are_their_ids():
    tokenizer = EstimatedTokenizer(QWEN_TOKENS)
    assert tokenizer("<|im_start|>a<|video_pad|>")["input_ids"] == [151644, NO_ID, 151656]
    assert tokenizer.convert_ids_to_tokens([151656, 5]) == ["<|video_pad|>", None]
    assert tokenizer.convert_tokens_to_ids("a") is None


def test_a_model_that_is_not_known_names_its_files():
    with pytest.raises(ModelError, match="the hub is out of reach") as caught:
        open_encoder("qwen3-vl-2b", counts_alone=True)
    for word in ("evs models fetch qwen3-vl-2b", "HF_HOME", "config.json", "tokenizer.json"):
        assert word in (caught.value.hint or ""), word


def test_figures_do_for_counts_alone(evs):
    with pytest.raises(ModelError, match="the hub is out of reach"):
        resolve_model("qwen3-vl-8b")
    with pytest.raises(ModelError, match="the hub is out of reach"):
        resolve_model("qwen3-vl-8b", revision="v1", counts_alone=True)
    encoder = open_encoder("qwen3-vl-8b", counts_alone=True)
    with pytest.raises(ModelError, match="the hub is out of reach"):
        _ = encoder.processor
    code, _, err = evs("prune", SAMPLE, "--model", "qwen3-vl-8b")
    assert (code, "the hub is out of reach" in err) == (4, True)


def test_a_check_asks_for_the_files():
    """It compares ids, which figures do not tell."""
    request = make_request(model="qwen3-vl-8b", dialect="vllm", prompt="Why?")
    with pytest.raises(ModelError, match="the hub is out of reach"):
        plan_clip(SAMPLE, SAMPLE, request)


def test_a_clip_that_the_processor_refuses_is_refused():
    video = NumbersRequest(height=8, width=4000, duration_seconds=4.0)
    with pytest.raises(UsageError, match="more than 200 times the other"):
        evs_cli.plan_video(video, model="qwen3-vl-8b")


def test_every_dialect_by_short_name_without_a_hub(tmp_path):
    arguments = ("plan", SAMPLE, "--model", "qwen3-vl-8b", "--dialect", "all")
    done, loaded = run_evs(tmp_path, *arguments, env={"HF_HUB_OFFLINE": "1", "HF_HOME": str(tmp_path / "home")})
    assert done.returncode == 0
    assert done.stdout.count("1,120") == 8
    assert done.stderr.count("published figures") == 1  # one sentence, though it holds for every row
    assert not loaded & {"torch", "transformers"}


def test_fit_counts_by_figures_too(evs):
    code, out, err = evs("fit", SAMPLE, "--model", "qwen3-vl-8b", "--context", "1k")
    assert code == 0, err
    assert "q = " in out


def test_fetch_tells_the_files(evs, hub_cache, served_checkpoint, tmp_path):
    hub_cache("qwen3-vl-8b", "qwen3_vl")
    code, out, _ = evs("models", "fetch", "qwen3-vl-8b", "--json")
    (model,) = json.loads(out)["models"]
    assert code == 0
    assert model["location"] == "Qwen/Qwen3-VL-8B-Instruct"
    assert {name.rsplit("/", 1)[-1] for name in model["files"]} >= {"config.json", "tokenizer.json"}
    assert model["size_bytes"] > 1000
    code, out, _ = evs("models", "fetch", served_checkpoint("qwen3_vl"))
    assert (code, "tokenizer.json" in out) == (0, True)


def test_fetch_out_of_reach(evs):
    code, _, err = evs("models", "fetch", "qwen3-vl-8b")
    assert (code, "the hub is out of reach" in err) == (4, True)


@pytest.mark.parametrize("words", [("fetch",), ("get", "qwen3-vl-8b")])
def test_other_words_are_refused(evs, words):
    code, _, err = evs("models", *words)
    assert (code, "Hint: evs models --help" in err) == (2, True)
