"""Device and dtype: what is asked for or an error, never another device in silence."""

import pytest
import torch

from evs_cli.core.dtypes import dtype_name
from evs_cli.encoders.runtime import DTYPES, parse_dtype, resolve_runtime
from evs_cli.errors import ModelError, UsageError


@pytest.fixture
def machine(monkeypatch):
    """``machine(cuda=True)``: pretend that a device is there or not."""

    def pretend(*, cuda=False, mps=False):
        monkeypatch.setattr(torch.cuda, "is_available", lambda: cuda)
        monkeypatch.setattr(torch.backends.mps, "is_available", lambda: mps)

    return pretend


def test_auto_takes_what_is_there():
    runtime = resolve_runtime()
    kind = "cuda" if torch.cuda.is_available() else "mps" if torch.backends.mps.is_available() else "cpu"
    assert torch.device(runtime.device).type == kind
    assert runtime.dtype == (torch.float32 if kind == "cpu" else torch.bfloat16)
    assert torch.zeros(1, device=runtime.device, dtype=runtime.dtype).numel() == 1


@pytest.mark.parametrize(
    ("there", "device", "dtype", "why"),
    [
        ({}, "cpu", torch.float32, "no CUDA or MPS device is there"),
        ({"cuda": True}, "cuda", torch.bfloat16, "a CUDA device is there"),
        ({"mps": True}, "mps", torch.bfloat16, "an MPS device is there"),
        ({"cuda": True, "mps": True}, "cuda", torch.bfloat16, "a CUDA device is there"),
    ],
)
def test_auto_by_machine(machine, there, device, dtype, why):
    machine(**there)
    runtime = resolve_runtime()
    assert (runtime.device, runtime.dtype) == (device, dtype)
    assert why in runtime.reason
    assert device in runtime.reason
    assert f"dtype {dtype_name(dtype)} (auto: " in runtime.reason


@pytest.mark.parametrize("device", ["cuda", "cuda:0", "cuda:7"])
def test_cuda_that_is_absent_is_an_error(device):
    if torch.cuda.is_available():
        pytest.skip("a CUDA device is there")
    with pytest.raises(ModelError, match=f"^cannot run on {device}: ") as error:
        resolve_runtime(device)
    assert error.value.exit_code == 4
    assert "--device cpu" in error.value.hint


def test_a_cuda_device_beyond_the_last_is_an_error():
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device is there")
    with pytest.raises(ModelError, match=r"^cannot run on cuda:99: "):
        resolve_runtime("cuda:99")


@pytest.mark.parametrize("device", ["mps", "xpu", "xla", "vulkan", "hpu", "fpga:0"])
def test_another_device_that_is_absent_is_an_error(device):
    """torch knows these by name; some of them it looks for in modules that are not there."""
    try:
        torch.zeros(1, device=device)
    except (RuntimeError, AssertionError, NotImplementedError, ImportError):
        with pytest.raises(ModelError, match=rf"^cannot run on {device}: "):
            resolve_runtime(device)
    else:
        pytest.skip("it is there")


@pytest.mark.parametrize("device", ["gpu", "", "cuda:x", "cuda:-1", "cpu cpu", "CPU", "cpu:"])
def test_nonsense_is_a_usage_error(device):
    with pytest.raises(UsageError, match=r"^Invalid device '.*'\. Expected auto, cpu, cuda"):
        resolve_runtime(device)


def test_a_device_that_holds_no_numbers_is_an_error():
    """torch knows a device `meta`, on which every tensor is empty: embeddings of it would be nothing."""
    with pytest.raises((ModelError, UsageError), match="meta"):
        resolve_runtime("meta")


@pytest.mark.parametrize("name", DTYPES)
def test_a_dtype_as_asked(name):
    runtime = resolve_runtime("cpu", name)
    assert runtime.dtype is getattr(torch, name)
    assert runtime.dtype_name == dtype_name(runtime.dtype) == name
    assert f"dtype {name} (as asked)" in runtime.reason
    assert parse_dtype(name) is runtime.dtype


@pytest.mark.parametrize("name", ["float64", "int8", "half", "", "Float32", "torch.int8", "fp16"])
def test_another_dtype_is_a_usage_error(name):
    with pytest.raises(UsageError, match=r"^Invalid dtype '.*'\. Expected auto, float32, bfloat16, float16\."):
        resolve_runtime("cpu", name)
