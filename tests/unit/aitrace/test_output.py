import os
import stat
import subprocess

import pytest

from aitrace.commands.output import write_text_file
from aitrace.errors import UsageError


def test_a_file_is_replaced_once_it_is_whole(tmp_path):
    path = tmp_path / "page.html"
    path.write_text("old")
    write_text_file(path, "new")
    assert path.read_text() == "new"
    assert [one.name for one in tmp_path.iterdir()] == ["page.html"]


def test_a_pipe_is_written_to_and_stays_one(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with subprocess.Popen(["cat", pipe], stdout=subprocess.PIPE, text=True) as reader:
        write_text_file(pipe, "page")
        assert reader.communicate()[0] == "page"
    assert stat.S_ISFIFO(pipe.stat().st_mode)


def test_a_directory_is_refused_and_left_alone(tmp_path):
    with pytest.raises(UsageError, match=r"cannot be written: Is a directory$"):
        write_text_file(tmp_path, "page")
    assert list(tmp_path.iterdir()) == []
