"""Not part of the other tests: these need real engines, which `make test-engines` installs and names here."""

import os
from pathlib import Path

import pytest

collect_ignore_glob = [] if "AITRACE_ENGINES" in os.environ else ["test_*.py"]


@pytest.fixture(scope="session")
def engines():
    """The folder in which the engines are installed."""
    return Path(os.environ["AITRACE_ENGINES"])


@pytest.fixture(scope="session")
def model(tmp_path_factory):
    """The folder of the model with the known answer."""
    from model import SHAPES, write_model

    directory = tmp_path_factory.mktemp("model")
    write_model(directory, SHAPES["tiny"])
    return directory
