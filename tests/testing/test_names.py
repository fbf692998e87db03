"""What `fencepost.testing` offers for annotations."""

import fencepost.testing
import pytest


def test_names_for_annotations_are_imported_when_they_are_used():
    for name in fencepost.testing.__all__:
        assert getattr(fencepost.testing, name).__name__ == name
    with pytest.raises(AttributeError, match="no attribute 'Fautls'"):
        fencepost.testing.Fautls  # noqa: B018
