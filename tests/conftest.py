"""Fixtures of the whole session, and the environment the tests run in."""

import contextlib
import functools
import os
import signal

os.environ.setdefault("HF_HUB_OFFLINE", "1")  # before anything imports huggingface_hub: no test asks the network
if "PYTEST_XDIST_WORKER" in os.environ:
    # Before anything imports torch: a worker a core, and torch's threads of one would wait for those of the others.
    os.environ.setdefault("OMP_NUM_THREADS", "1")

import pytest
from drawn_cases import Amount
from made_once import begin_run, made_once

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A shell starts `pytest &` of a script so, and every child would begin so: no Ctrl-C would ever reach one.
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_configure(config):
    if not hasattr(config, "workerinput"):  # not one of pytest-xdist's workers, which find what this one sets
        begin_run()
    Amount.is_full = "not slow" not in config.getoption("markexpr")


COMMIT = "0123456789abcdef0123456789abcdef01234567"
"""Of the checkpoints in ``hub_cache``."""

pytest.register_assert_rewrite("frame_checks", "grid_checks")  # classes of tests that several families share


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item):
    with _skipped_on_old_releases():
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item):
    with _skipped_on_old_releases():
        return (yield)


@contextlib.contextmanager
def _skipped_on_old_releases():
    """Skip what evs itself refuses on the installed transformers, with its own words as the reason.

    With the newest release nothing is refused so, and nothing is skipped.
    """
    from evs_cli.errors import ModelError

    try:
        yield
    except ModelError as error:
        if "It needs transformers" in error.message:
            pytest.skip(error.message)
        raise


@pytest.fixture(scope="session")
def tiny_model():
    """``tiny_model("qwen3_vl")``: the folder of that family's tiny checkpoint, written on the run's first use."""
    import tiny_models

    def folder_of(model_type):
        return made_once(f"tiny_models/{model_type}", functools.partial(tiny_models.save_tiny_model, model_type))

    return folder_of


@pytest.fixture(scope="session")
def served_checkpoint():
    """``served_checkpoint("qwen3_vl")``: a folder with the limits of the published checkpoint and no weights."""
    import served_checkpoints

    def folder_of(name):
        return made_once(f"served_checkpoints/{name}", served_checkpoints.SAVERS[name])

    return folder_of


@pytest.fixture
def hub_cache(tmp_path, monkeypatch, served_checkpoint):
    """``hub_cache("qwen3-vl-8b", "qwen3_vl")``: that short name's checkpoint as the hub's cache would hold it."""
    from evs_cli.encoders.source import SHORT_NAMES

    cache = tmp_path / "hub cache"
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(cache))

    def put(short_name, checkpoint):
        folder = cache / f"models--{SHORT_NAMES[short_name].replace('/', '--')}"
        (folder / "refs").mkdir(parents=True)
        (folder / "refs" / "main").write_text(COMMIT, encoding="utf-8")
        (folder / "snapshots").mkdir()
        (folder / "snapshots" / COMMIT).symlink_to(served_checkpoint(checkpoint), target_is_directory=True)

    return put


@pytest.fixture(scope="session")
def tiny_family(tiny_model):
    """``tiny_family("qwen3_vl")``: that vision-language checkpoint, loaded through evs and whole; leave it as it is."""
    import tiny_models

    families = {}

    def family_of(model_type):
        if model_type not in families:
            families[model_type] = tiny_models.TinyFamily(model_type, tiny_model(model_type))
        return families[model_type]

    return family_of


@pytest.fixture(autouse=True)
def _clean_environment(monkeypatch):
    """No setting of the machine reaches a test, and no test's reaches another."""
    for name in ("EVS_DEBUG", "EVS_MODEL", "EVS_DEVICE", "EVS_CACHE_SIZE", "FORCE_COLOR", "NO_COLOR", "COLUMNS"):
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)


@pytest.fixture
def evs(capsys):
    """Run a command line: exit code, stdout, stderr."""

    from evs_cli.cli.app import main

    def run(*arguments):
        capsys.readouterr()
        code = main([str(argument) for argument in arguments])
        return code, *capsys.readouterr()

    return run
