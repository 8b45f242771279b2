"""Plans of described videos from Python: the same counts as the command's, of a model that stays open."""

import json
import shutil
from dataclasses import replace

import pytest
from fresh_python import run_fresh

import evs_cli
from evs_cli import NumbersRequest
from evs_cli.errors import UsageError
from evs_cli.jobs.opened_models import forget_models, opened_model
from evs_cli.pipeline.request import make_request
from evs_cli.report.budget import plan_record

VIDEO = NumbersRequest(height=360, width=640, duration_seconds=20.0, source_fps=25.0)


@pytest.fixture(autouse=True)
def _closed():
    forget_models()
    yield
    forget_models()


@pytest.mark.parametrize("prompt", [None, "What happens?"])
@pytest.mark.parametrize("dialect", ["evs", "hf", "vllm", "sglang"])
def test_numbers_are_planned_as_the_command_does(evs, served_checkpoint, dialect, prompt):
    model = str(served_checkpoint("qwen3_vl"))
    report = evs_cli.plan_video(VIDEO, q=0.0, model=model, dialect=dialect, prompt=prompt)
    line = ["plan", "--height", "360", "--width", "640", "--duration", "20", "--source-fps", "25", "--q", "0"]
    line += ["--model", model, "--dialect", dialect, *(["--prompt", prompt] if prompt else [])]
    code, out, _ = evs(*line, "--json")
    assert code == 0
    assert json.loads(out)["videos"] == json.loads(json.dumps([plan_record(report)]))
    brief = evs_cli.plan_video(VIDEO, q=0.0, model=model, dialect=dialect, prompt=prompt, with_details=False)
    rates = [
        replace(
            rate, cost=None, server_limits=tuple(replace(each, longest_seconds=None) for each in rate.server_limits)
        )
        for rate in report.rates
    ]
    assert brief == replace(report, frames=(), rates=tuple(rates))


def test_options_are_held_against_the_dialect_in_every_call(served_checkpoint):
    """A model that is open already is asked as one that is opened is: a trainer bounds frames, a server does not."""
    bounded = {"model": str(served_checkpoint("qwen3_vl")), "dialect": "llamafactory", "frame_max_pixels": 40_000}
    first, again = (evs_cli.plan_video(VIDEO, q=0.0, **bounded) for _ in range(2))
    assert first == again
    refused = {"model": str(served_checkpoint("qwen2_5_vl")), "dialect": "vllm", "video_max_pixels": 10**6}
    for _ in range(2):
        with pytest.raises(UsageError, match="--video-max-pixels has no effect"):
            evs_cli.plan_video(VIDEO, q=0.0, **refused)


def test_a_model_stays_open_until_its_files_change(tmp_path, served_checkpoint):
    folder = tmp_path / "model"
    shutil.copytree(served_checkpoint("qwen3_vl"), folder)
    request = make_request(model=str(folder))
    first = opened_model(request)
    assert opened_model(request) is first
    before = evs_cli.plan_video(VIDEO, q=0.0, model=str(folder)).total_tokens
    path = folder / "processor_config.json"
    values = json.loads(path.read_text(encoding="utf-8"))
    values["video_processor"]["size"]["longest_edge"] = 32 * 32 * 100
    path.write_text(json.dumps(values), encoding="utf-8")
    assert opened_model(request) is not first
    assert evs_cli.plan_video(VIDEO, q=0.0, model=str(folder)).total_tokens < before


def test_an_open_model_still_checks_what_is_asked(served_checkpoint):
    model = str(served_checkpoint("qwen3_vl"))
    evs_cli.plan_video(VIDEO, q=0.0, model=model)
    with pytest.raises(UsageError, match="--size has no effect"):
        evs_cli.plan_video(VIDEO, q=0.0, model=model, size=224)


def test_only_so_many_models_stay_open(tmp_path, served_checkpoint):
    folders = [tmp_path / str(number) for number in range(9)]
    for folder in folders:
        shutil.copytree(served_checkpoint("qwen3_vl"), folder)
    encoders = [opened_model(make_request(model=str(folder))) for folder in folders]
    assert opened_model(make_request(model=str(folders[-1]))) is encoders[-1]
    assert opened_model(make_request(model=str(folders[0]))) is not encoders[0]


def test_a_described_video_takes_milliseconds_and_no_torch(tmp_path, served_checkpoint):
    """About 1 ms on a machine at rest (README); 20 ms leave room for one that runs other tests on every core."""
    code = (
        "import sys, time, evs_cli\n"
        "video = evs_cli.NumbersRequest(height=720, width=1280, duration_seconds=60.0)\n"
        f"model = {str(served_checkpoint('qwen3_vl'))!r}\n"
        "def once():\n"
        "    return evs_cli.plan_video(video, q=0.0, model=model, dialect='vllm', with_details=False)\n"
        "assert once().total_tokens == 11400\n"
        "times = []\n"
        "for _ in range(50):\n"
        "    start = time.thread_time(); once(); times.append(time.thread_time() - start)\n"
        "assert min(times) < 0.02, min(times)\n"
        "assert not {'torch', 'transformers', 'av'} & set(sys.modules)\n"
    )
    run_fresh(code, tmp_path)
