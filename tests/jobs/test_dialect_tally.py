"""What several dialects' outcomes of a video come to."""

import pytest

from evs_cli.errors import BudgetError, ModelError, VideoError
from evs_cli.jobs.dialect_tally import DialectTally
from evs_cli.jobs.runner import Input, Outcome, SomeVideosFailedError

REPORT = object()


def ended(*videos):
    """The error that a tally ends with; each video is a list of results and errors, a dialect each."""
    tally = DialectTally()
    for number, outcomes in enumerate(videos):
        tally.add([outcome(f"{number}.mp4", each) for each in outcomes])
    try:
        tally.raise_errors()
    except Exception as error:
        return error
    return None


def outcome(video, given):
    if isinstance(given, tuple):  # planned, and refused
        return Outcome(Input(video), given[0], refusal=given[1])
    return Outcome(Input(video), error=given) if isinstance(given, Exception) else Outcome(Input(video), given)


def test_one_dialect_that_takes_a_video_is_enough():
    assert ended([ModelError("no processor"), REPORT, (REPORT, BudgetError("too long"))]) is None


def test_a_video_that_fits_no_dialect():
    last = BudgetError("too long for b")
    assert ended([ModelError("no processor"), (REPORT, BudgetError("too long for a")), (REPORT, last)]) is last


def test_one_reason_under_every_dialect_keeps_its_exit_code():
    errors = [VideoError("no such file") for _ in range(3)]
    assert ended(errors) is errors[0]


def test_several_reasons_are_a_video_that_no_dialect_takes():
    error = ended([ModelError("no processor"), BudgetError("two frames at least")])
    assert isinstance(error, BudgetError)
    assert str(error) == "no dialect takes it: two frames at least"


@pytest.mark.parametrize("error", [VideoError("no such file"), BudgetError("two frames at least")])
def test_one_of_several_videos_is_named(error):
    found = ended([REPORT], [error, error])
    assert isinstance(found, SomeVideosFailedError)
    assert str(found) == "1 of 2 videos failed: 1.mp4"


def test_a_refusal_goes_before_a_failure():
    refusal = BudgetError("too long")
    assert ended([VideoError("no such file")], [(REPORT, refusal)]) is refusal
