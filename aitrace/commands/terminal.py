"""I/O: the terminal of a command that prints with rich."""

import os
import sys

from rich.console import Console


class Terminal(Console):
    """Standard output; where its reader went away (`| head`) that is told by `BrokenPipeError`, as click does.

    Rich itself would end the program with code 1, which says of a run that it is in doubt.
    """

    def on_broken_pipe(self) -> None:
        """Raise it again, with nothing left to be flushed at the end of the program."""
        self.quiet = True
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise BrokenPipeError
