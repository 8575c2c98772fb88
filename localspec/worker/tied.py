"""Runs a module as a program that ends with the process which started it.

`python -m localspec.worker.tied MODULE ARGUMENTS`: a program that is not ours, such as pip, does
not watch its parent, and would go on after the parent was ended by SIGKILL.
"""

from __future__ import annotations

import runpy
import sys

from localspec.worker.process import die_with_parent


def main() -> None:
    """Run the module that the first argument names; the others are its own."""
    die_with_parent()
    del sys.argv[0]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
