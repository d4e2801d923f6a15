"""Generates the message modules of ahwire's schemas: `protogen.py FOLDER` writes FOLDER/ahwire/.

The compiler's version decides which protobuf runtimes the generated code accepts: 1.71.0 makes
code for 5.29 to 7, so that an embedded agent forces no version on its host. It comes in an
environment of its own that is thrown away, since it must not decide which protobuf the workspace
uses.
"""

import subprocess
import sys
import tempfile
from pathlib import Path

COMPILER = "grpcio-tools==1.71.0"
SOURCES = Path(__file__).resolve().parents[2] / "packages" / "ahwire" / "src"
SCHEMAS = ("ahwire/agent.proto", "ahwire/remote_write.proto")
NO_COMPILER = 3  # exit code: the compiler cannot be had


class NoCompilerError(Exception):
    """The compiler could not be installed here."""


def generate(folder: Path) -> None:
    """Write the generated files below `folder`.

    Raises:
        NoCompilerError: The compiler cannot be had on this machine.
    """
    with tempfile.TemporaryDirectory(prefix="protogen-") as home:
        uv = str(Path(sys.executable).parent / "uv")
        python = str(Path(home) / "bin" / "python")
        steps = (
            [uv, "venv", "--quiet", "--clear", "--python", sys.executable, home],
            [uv, "pip", "install", "--quiet", "--python", python, COMPILER],
        )
        for step in steps:
            done = subprocess.run(step, capture_output=True, text=True, check=False)
            if done.returncode != 0:
                raise NoCompilerError(f"{COMPILER} cannot be installed:\n{done.stderr}")
        subprocess.run(
            [
                *(python, "-m", "grpc_tools.protoc", f"-I{SOURCES}"),
                *(f"--python_out={folder}", f"--pyi_out={folder}", *SCHEMAS),
            ],
            check=True,
        )


if __name__ == "__main__":
    try:
        generate(Path(sys.argv[1]).resolve())
    except NoCompilerError as problem:
        sys.stderr.write(f"{problem}\n")
        sys.exit(NO_COMPILER)
