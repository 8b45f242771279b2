"""A server's options as its command line has them."""

from dataclasses import replace

import pytest
from served_models import QWEN3

from evs_cli.dialects import parse_dialect
from evs_cli.dialects.server_command import ServerRequest, parse_server_command
from evs_cli.dialects.server_options import parse_server_options
from evs_cli.dialects.vllm_0_33_limits import encoder_cache
from evs_cli.errors import UsageError

VLLM, SGLANG, HF = (parse_dialect(name) for name in ("vllm", "sglang", "hf"))


def test_a_whole_vllm_line():
    command = parse_server_command(
        "CUDA_VISIBLE_DEVICES=0 vllm serve Qwen/Qwen3-VL-8B-Instruct --port 8000 --max_model_len 32k "
        '--video-pruning-rate=0.6 --media-io-kwargs \'{"video": {"fps": 1}}\' --max-num-batched-tokens 4096 -tp 2'
    )
    assert (command.dialect.server, command.model) == ("vllm", "Qwen/Qwen3-VL-8B-Instruct")
    options = parse_server_options(command.dialect, **command.options)
    assert (options.media_io, options.video_pruning_rate) == ({"fps": 1}, 0.6)
    assert (options.max_model_len, options.max_num_batched_tokens) == (32_000, 4096)


@pytest.mark.parametrize(
    ("line", "model"),
    [
        ("python -m vllm.entrypoints.openai.api_server --model X/Y", "X/Y"),
        ("vllm serve --model X/Y", "X/Y"),
        ("vllm serve X/Y --trust-remote-code", "X/Y"),
        ("vllm serve --max-model-len 32k --trust-remote-code X/Y", "X/Y"),
        ("/opt/venv/bin/vllm serve X/Y", "X/Y"),
        ("docker run --gpus all vllm/vllm-openai:v0.33.0 --model X/Y", "X/Y"),
        ("python3 -m sglang.launch_server --model-path X/Y --context-length 8192", "X/Y"),
        ("sglang serve X/Y", "X/Y"),
    ],
)
def test_where_the_model_is_named(line, model):
    assert parse_server_command(line).model == model


def test_dotted_json():
    command = parse_server_command("vllm serve X --media-io-kwargs.video.fps 1 --media-io-kwargs.video.max_frames 64")
    assert parse_server_options(command.dialect, **command.options).media_io == {"fps": 1, "max_frames": 64}


def test_sglang_line():
    line = 'python -m sglang.launch_server --model-path X --mm-process-config \'{"video": {"nframes": 8}}\''
    command = parse_server_command(line + " --context-length 1M")
    options = parse_server_options(command.dialect, **command.options)
    assert (options.mm_process, options.max_model_len) == ({"nframes": 8}, 2**20)


def test_what_a_line_says_beside_its_options():
    line = "VLLM_MAX_MEDIA_REQUEST_DECODE_BYTES=1000 vllm serve X"
    ((_, options),) = ServerRequest(server_cmd=line).resolve()
    assert options.max_decoded_bytes == 1000
    ((_, options),) = ServerRequest(server_cmd="VLLM_MAX_IMAGE_PIXELS=1000 vllm serve X").resolve()
    assert options.max_image_pixels == 1000
    override = "sglang serve X --json-model-override-args '{\"video_pruning_rate\": 0.88}'"
    ((_, options),) = ServerRequest(server_cmd=override).resolve()
    assert options.video_pruning_rate == 0.88
    ((_, options),) = ServerRequest(server_cmd="vllm serve X --video-pruning-method vidcom2").resolve()
    assert options.video_pruning_method == "vidcom2"
    with pytest.raises(UsageError, match=r"Invalid --video-pruning-method 'other'\. Expected evs or vidcom2"):
        ServerRequest(server_cmd="vllm serve X --video-pruning-method other").resolve()


@pytest.mark.parametrize(
    ("limit", "most"),
    [
        ("""--limit-mm-per-prompt '{"video": 2, "image": 0}'""", 2),
        ("""--limit-mm-per-prompt '{"video": {"count": 3, "num_frames": 8}}'""", 3),
        ("""--limit-mm-per-prompt '{"video": {"num_frames": 8}}'""", None),  # a size alone leaves vLLM's own 999
        ("--limit-mm-per-prompt.video 0", 0),
        ("--limit-mm-per-prompt.video.count 4", 4),
        ("--language-model-only", 0),
        ("--limit-mm-per-prompt video=1,image=4", 1),
        ("""--limit-mm-per-prompt '{"image": 1}'""", None),
        ("", None),
    ],
)
def test_how_many_videos_a_request_may_hold(limit, most):
    command = parse_server_command(f"vllm serve m {limit}")
    assert command.model == "m"
    assert parse_server_options(command.dialect, **command.options).max_videos == most


def test_sglang_bounds_videos_too():
    command = parse_server_command("""python -m sglang.launch_server --limit-mm-data-per-request '{"video": 2}'""")
    options = parse_server_options(command.dialect, **command.options)
    assert (options.max_videos, options.takes_images) == (2, True)
    with pytest.raises(UsageError, match=r"Invalid --limit-mm-data-per-request .* Expected a number of videos"):
        parse_server_command("""python -m sglang.launch_server --limit-mm-data-per-request '{"video": "2"}'""")


def test_images_size_the_encoder_cache_unless_there_are_none():
    def cache(model, line):
        command = parse_server_command(f"vllm serve m --max-num-batched-tokens 1 {line}")
        return encoder_cache(model, parse_server_options(command.dialect, **command.options), 32_768).most

    no_image = """--limit-mm-per-prompt '{"image": 0}'"""
    qwen3 = replace(QWEN3, image_max_pixels=32 * 32 * 9000, max_pixels=32 * 32 * 2 * 5000)
    assert (cache(qwen3, ""), cache(qwen3, no_image)) == (9000, 5000)
    assert cache(qwen3, """--limit-mm-per-prompt '{"image": 3}'""") == 9000  # one is expected, however many may come


def test_a_size_in_the_limits_is_said_not_to_be_read(evs, tiny_model):
    line = f"vllm serve {tiny_model('qwen3_vl')} --limit-mm-per-prompt " + """'{"video": {"count": 2, "width": 99}}'"""
    code, _, err = evs("plan", "--height", 90, "--width", 120, "--duration", 4, "--server-cmd", line)
    assert code == 0
    assert "width in --limit-mm-per-prompt of the server's command line is not counted with" in err


def test_a_server_that_takes_no_video(evs, tiny_model):
    line = f"vllm serve {tiny_model('qwen3_vl')} --limit-mm-per-prompt.video 0"
    code, _, err = evs("plan", "--height", 90, "--width", 120, "--duration", 4, "--server-cmd", line)
    assert (code, "takes no video" in err) == (6, True)


def test_a_config_file_is_read_and_the_line_wins(tmp_path):
    path = tmp_path / "config.yaml"
    path.write_text(
        "model: Qwen/Qwen3-VL-8B-Instruct\nmax-model-len: 32768\nvideo_pruning_rate: 0.5\n"
        "media-io-kwargs:\n  video:\n    fps: 1\ntrust-request-mm-kwargs: true\nenforce-eager: false\n",
        encoding="utf-8",
    )
    command = parse_server_command(f"vllm serve --config {path} --max-model-len 8192")
    assert command.model == "Qwen/Qwen3-VL-8B-Instruct"
    options = parse_server_options(command.dialect, **command.options)
    assert (options.max_model_len, options.video_pruning_rate, options.media_io) == (8192, 0.5, {"fps": 1})
    assert options.trusts_requests is True
    assert options.unread == ()
    for content in ("- a list", "a: [b"):
        path.write_text(content, encoding="utf-8")
        assert parse_server_command(f"vllm serve m --config {path}").options["unread"] == (
            f"--config {path}, which holds no options,",
        )
    path.write_text("chat-template: t.jinja\nlimit-mm-per-prompt:\n  video: 2\n", encoding="utf-8")
    given = parse_server_command(f"vllm serve m --config {path}").options
    assert (given["unread"], given["max_videos"]) == (("--chat-template",), 2)


def test_what_is_not_read_is_said(evs, tiny_model, tmp_path):
    model = tiny_model("qwen3_vl")
    line = f"VLLM_VIDEO_LOADER_BACKEND=pynvvideocodec vllm serve {model} --chat-template t.jinja"
    line += f" --config {tmp_path / 'none.yaml'} " + """--media-io-kwargs '{"video": {"video_backend": "opencv"}}'"""
    code, _, err = evs("plan", "--height", 90, "--width", 120, "--duration", 4, "--server-cmd", line)
    assert code == 0
    unread = ("--chat-template", f"--config {tmp_path / 'none.yaml'}, which is not here,", "VLLM_VIDEO_LOADER_BACKEND")
    for name in unread:
        assert f"{name} of the server's command line is not counted with" in err
    assert "video_backend opencv may sample by another rule" in err


def test_scoped_processor_arguments_win():
    text = '{"fps": 2, "videos_kwargs": {"fps": 1, "size": {"longest_edge": 9}}, "images_kwargs": {"max_pixels": 1}}'
    options = parse_server_options(VLLM, mm_processor_kwargs=text)
    assert options.mm_processor == {"fps": 1, "size": {"longest_edge": 9}}


def test_an_option_of_another_server_is_refused_or_that_servers():
    for dialect, given, owner in [
        (SGLANG, {"media_io_kwargs": "{}"}, "vllm"),
        (VLLM, {"mm_process_config": "{}"}, "sglang"),
        (HF, {"max_num_batched_tokens": 4}, "vllm"),
        (SGLANG, {"mm_processor_kwargs": "{}"}, "vllm"),
    ]:
        with pytest.raises(UsageError, match=f"has no effect on {dialect.name}. Expected it with --dialect {owner}"):
            parse_server_options(dialect, **given)
    request = ServerRequest(dialect="all", media_io_kwargs='{"video": {"fps": 1}}')
    by_server = {dialect.server: options for dialect, options in request.resolve()}
    assert by_server["vllm"].media_io == {"fps": 1}
    assert by_server["sglang"].media_io == by_server["hf"].media_io == by_server["evs"].media_io == {}


def test_the_line_settles_the_dialect_unless_it_is_given():
    assert [d.name for d, _ in ServerRequest().resolve()] == ["evs"]
    line = "vllm serve X --max-model-len 100"
    ((dialect, options),) = ServerRequest(server_cmd=line).resolve()
    assert (dialect.name, options.max_model_len) == ("vllm@0.33", 100)
    ((_, options),) = ServerRequest(server_cmd=line, max_model_len=50).resolve()
    assert options.max_model_len == 50
    with pytest.raises(UsageError, match="--media-io-kwargs and --server-cmd exclude each other"):
        ServerRequest(server_cmd=line, media_io_kwargs="{}").resolve()


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"media_io_kwargs": "{fps: 1}"}, "Expected a JSON object"),
        ({"media_io_kwargs": "[1]"}, "Expected a JSON object"),
        ({"media_io_kwargs": '{"fps": 1}'}, r'Expected \{"video": \{…\}\}'),
        ({"media_io_kwargs": '{"video": 3}'}, r'Expected \{"video": \{…\}\}'),
        ({"media_io_kwargs": '{"video": {"fps": 0}}'}, r"Invalid fps \(0\).* above 0"),
        ({"media_io_kwargs": '{"video": {"fps": "2"}}'}, r"Invalid fps \('2'\)"),
        ({"media_io_kwargs": '{"video": {"max_frames": 0}}'}, r"Invalid max_frames \(0\)"),
        ({"media_io_kwargs": '{"video": {"num_frames": 0}}'}, r"Invalid num_frames \(0\)"),
        ({"media_io_kwargs": '{"video": {"num_frames": true}}'}, r"Invalid num_frames \(True\)"),
        ({"mm_processor_kwargs": '{"size": 4}'}, r"Invalid size \(4\)"),
        ({"mm_processor_kwargs": '{"videos_kwargs": 4}'}, "videos_kwargs to be an object"),
        ({"video_pruning_rate": 1.0}, "Invalid pruning rate 1.0"),
        ({"video_pruning_rate": "much"}, r"Invalid video_pruning_rate \('much'\)"),
        ({"max_model_len": "long"}, r"Invalid max_model_len \('long'\)"),
        ({"max_model_len": 0}, r"Invalid max_model_len \(0\)"),
        ({"max_num_batched_tokens": 0}, r"Invalid max_num_batched_tokens \(0\)"),
    ],
)
def test_what_cannot_be_read(given, message):
    with pytest.raises(UsageError, match=message):
        parse_server_options(VLLM, **given)


@pytest.mark.parametrize("line", ["ollama run x", "vllm serve 'x", ""])
def test_lines_that_start_no_server(line):
    with pytest.raises(UsageError, match="Invalid --server-cmd"):
        parse_server_command(line)


def test_minus_one_and_auto_are_no_length():
    assert parse_server_options(VLLM, max_model_len="auto").max_model_len is None
    assert parse_server_options(VLLM, media_io_kwargs='{"video": {"num_frames": -1, "fps": -1}}').media_io == {
        "num_frames": -1,
        "fps": -1,
    }


def test_a_slip_in_an_option_of_the_command_line_is_named(tmp_path):
    """One that is like an option of videos; servers have hundreds that have nothing to do with them."""
    line = "vllm serve X --video-prunning-rate 0.7 --max-num-seqs 8 --port 80"
    ((_, options),) = ServerRequest(server_cmd=line).resolve()
    assert options.unread == ("--video-prunning-rate (--video-pruning-rate?)",)
    path = tmp_path / "no.yaml"
    ((_, options),) = ServerRequest(server_cmd=f"vllm serve X --config {path}").resolve()
    assert options.unread == (f"--config {path}, which is not here,",)
    path.write_text("- 1")
    ((_, options),) = ServerRequest(server_cmd=f"vllm serve X --config {path}").resolve()
    assert options.unread == (f"--config {path}, which holds no options,",)


def test_another_server_than_the_command_lines_is_refused():
    for dialect in ("sglang", "hf", "evs"):
        with pytest.raises(UsageError, match=f"--dialect {dialect} and --server-cmd, which starts vllm, contradict"):
            ServerRequest(server_cmd="vllm serve X", dialect=dialect).resolve()
    assert ServerRequest(server_cmd="vllm serve X", dialect="vllm@0.32").resolve()[0][0].version == "0.32"
