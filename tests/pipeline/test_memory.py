"""Free memory: the machine's, or what a container's limit leaves of it."""

import platform
import sys

import pytest

from evs_cli.pipeline import memory
from evs_cli.pipeline.memory import free_memory_bytes, keep_freed_blocks


@pytest.fixture
def machine(monkeypatch, tmp_path):
    """A folder that stands for the system's files."""
    monkeypatch.setattr(memory, "_MEMINFO", tmp_path / "meminfo")
    monkeypatch.setattr(memory, "_CGROUP", tmp_path)
    (tmp_path / "meminfo").write_text("MemTotal: 9000 kB\nMemFree: 100 kB\nMemAvailable:   8000 kB\n")
    return tmp_path


def test_what_the_kernel_calls_available(machine):
    assert free_memory_bytes() == 8000 * 1024


@pytest.mark.parametrize(
    ("limit", "usage", "cached"),
    [
        ("memory.max", "memory.current", "inactive_file"),
        ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes", "total_inactive_file"),
    ],
)
def test_a_limit_leaves_less(machine, limit, usage, cached):
    """Usage counts pages of files, which the kernel gives back."""
    (machine / "memory").mkdir()
    (machine / usage).write_text("5000\n")
    (machine / limit).with_name("memory.stat").write_text(f"anon 1\n{cached} 1000\n")
    (machine / limit).write_text("7000\n")
    assert free_memory_bytes() == 3000
    (machine / limit).write_text("max\n")
    assert free_memory_bytes() == 8000 * 1024
    (machine / limit).write_text("9223372036854771712\n")
    assert free_memory_bytes() == 8000 * 1024


@pytest.mark.skipif(sys.platform == "win32", reason="the system does not tell")
def test_without_the_kernels_word_half_of_the_machine(machine):
    (machine / "meminfo").unlink()
    assert free_memory_bytes() > 2**28


def test_freed_blocks_are_kept_where_the_c_library_can(monkeypatch):
    monkeypatch.delenv("MALLOC_MMAP_THRESHOLD_", raising=False)
    monkeypatch.delenv("MALLOC_TRIM_THRESHOLD_", raising=False)
    assert keep_freed_blocks() == (platform.libc_ver()[0] == "glibc")


@pytest.mark.parametrize("name", ["MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_"])
def test_what_the_environment_says_of_freed_blocks_goes_before(monkeypatch, name):
    monkeypatch.setenv(name, "4096")
    assert not keep_freed_blocks()
