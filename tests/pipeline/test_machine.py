"""What a measurement tells of the machine."""

import os
import sys
from pathlib import Path

import pytest

from evs_cli.pipeline import machine
from evs_cli.video.cores import core_count


def test_the_processor_is_called_by_its_model(monkeypatch, tmp_path):
    cpuinfo = tmp_path / "cpuinfo"
    cpuinfo.write_text("processor\t: 0\nmodel name\t: Some CPU @ 2.00GHz\nprocessor\t: 1\nmodel name\t: Some CPU\n")
    monkeypatch.setattr(machine, "_CPUINFO", cpuinfo)
    assert machine.processor_name() == "Some CPU @ 2.00GHz"


def test_without_a_model_there_is_still_a_word(monkeypatch, tmp_path):
    monkeypatch.setattr(machine, "_CPUINFO", tmp_path / "none")
    assert machine.processor_name()


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="cores cannot be taken away here")
def test_cores_that_were_taken_away_do_not_count():
    cores = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, {min(cores)})
        assert core_count() == 1
    finally:
        os.sched_setaffinity(0, cores)
    assert core_count() == len(cores)


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel tells the peak elsewhere only by this very call")
def test_the_peak_is_the_kernels_high_water_mark():
    def high_water_bytes():
        (line,) = (line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
        return int(line.split()[1]) * 1024

    before = high_water_bytes()
    peak = machine.peak_memory_bytes()
    # A process keeps the mark of the program it was before exec; the kernel counts pages in batches a core.
    assert peak >= before - 2**20
    ballast = bytearray(2 * peak)
    for k in range(0, len(ballast), 4096):
        ballast[k] = 1
    assert machine.peak_memory_bytes() >= 2 * peak - 2**20
