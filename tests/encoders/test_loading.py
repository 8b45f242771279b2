"""transformers is kept quiet while evs calls it, also from two threads at once."""

import itertools

import pytest
from transformers.utils import logging as library_logging

from evs_cli.encoders.loading import quiet_transformers


@pytest.mark.parametrize("leaves_first", [0, 1])
def test_whoever_leaves_last_puts_back_what_was_found(leaves_first):
    """Two that overlap without one being inside the other, as two threads do."""
    library_logging.set_verbosity_info()
    library_logging.enable_progress_bar()
    try:
        both = [quiet_transformers(), quiet_transformers()]
        for each in both:
            each.__enter__()
        for left, each in enumerate((both[leaves_first], both[1 - leaves_first]), 1):
            assert library_logging.get_verbosity() == library_logging.ERROR
            assert not library_logging.is_progress_bar_enabled()
            each.__exit__(None, None, None)
            assert (library_logging.get_verbosity() == library_logging.INFO) == (left == 2)
        assert library_logging.is_progress_bar_enabled()
    finally:
        library_logging.set_verbosity_warning()


def test_it_can_be_wanted_again():
    for _ in itertools.repeat(None, 2):
        with quiet_transformers():
            assert library_logging.get_verbosity() == library_logging.ERROR
        assert library_logging.get_verbosity() != library_logging.ERROR
