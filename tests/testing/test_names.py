"""The names that `fencepost.testing` exports, for example for annotations."""

import fencepost.testing
import pytest


def test_every_name_in_all_of_fencepost_testing_can_be_imported():
    for name in fencepost.testing.__all__:
        assert getattr(fencepost.testing, name).__name__ == name
    with pytest.raises(AttributeError, match="no attribute 'Fautls'"):
        fencepost.testing.Fautls  # noqa: B018
