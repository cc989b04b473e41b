import subprocess
import sys

PROGRAM = """
import sys
from aitrace.commands.terminal import Terminal
try:
    for _ in range(100_000):
        Terminal().print("line")
except BrokenPipeError:
    sys.exit(7)
"""


def test_a_reader_that_went_away_is_told_as_a_broken_pipe():
    writer = subprocess.Popen([sys.executable, "-c", PROGRAM], stdout=subprocess.PIPE)
    assert writer.stdout.readline() == b"line\n"
    writer.stdout.close()
    assert writer.wait() == 7
