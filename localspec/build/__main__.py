"""The builds that `make` asks for: `python -m localspec.build install|llama-server ...`."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from localspec.build import toolchain
from localspec.build.backends import NAMES
from localspec.build.compile import IntoEnvironment, Workshop, build, working
from localspec.build.server import server
from localspec.build.source import Pip
from localspec.errors import LocalSpecError


def main() -> int:
    """Build what is asked for and show the progress; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m localspec.build", description=__doc__)
    parser.add_argument("what", choices=("install", "llama-server"))
    parser.add_argument("--into", type=Path, required=True, metavar="VENV", help="an environment")
    parser.add_argument("--backend", default="auto", metavar="|".join(NAMES))
    parser.add_argument("--remote", action="store_true", help="able to use other machines")
    asked = parser.parse_args()
    try:
        tools = toolchain.find(asked.backend, remote=asked.remote, say=_say)
        with working(tools) as work:
            pip = Pip(asked.into / "bin" / "python", work)
            if asked.what == "install":
                log = asked.into / "llama.log"
                chosen = asked.backend != "auto"
                shop = Workshop(tools, pip, work, log, _say)
                build(shop, IntoEnvironment(pip, _say), chosen=chosen)
            else:
                log = asked.into / "llama-server.log"
                program = server(Workshop(tools, pip, work, log, _say))
                link = asked.into / "bin" / "llama-server"
                link.unlink(missing_ok=True)
                link.symlink_to(program)
                _say(str(link))
    except LocalSpecError as error:
        _say(str(error))
        return error.exit_code
    except KeyboardInterrupt:
        return 130
    return 0


def _say(sentence: str) -> None:
    print(sentence, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
