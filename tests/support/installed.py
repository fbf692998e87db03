"""fencepost as users have it: a wheel of this tree, installed into a virtual environment that borrows the rest."""

import shutil
import subprocess
import sys
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
LEFT_OUT = shutil.ignore_patterns(
    ".git", ".venv", "build", "*.egg-info", "__pycache__", ".*_cache", ".hypothesis", "results"
)


def wheel(folder: Path, name: str = "tree") -> Path:
    """Build a wheel from a copy of this tree in a folder of this name, without a network, and return its path."""
    shutil.copytree(ROOT, folder / name, ignore=LEFT_OUT)
    pip("wheel", "--no-deps", "--no-build-isolation", "--no-index", "--wheel-dir", folder, folder / name)
    (made,) = folder.glob("fencepost-*.whl")
    return made


def environment(folder: Path, *packages: str | Path) -> Path:
    """Create a virtual environment with these packages, and with everything that this Python has besides. Returns its
    python. Raises CalledProcessError.
    """
    venv.create(folder, with_pip=False, symlinks=True)
    python = folder / "bin" / "python"
    site = next((folder / "lib").glob("python*/site-packages"))
    for package in packages:
        pip("--python", python, "install", *(["--no-deps", "--no-index"] if isinstance(package, Path) else []), package)
    # What stands there comes after what is installed, and makes no package editable.
    ours = [entry for entry in sys.path if entry.endswith("site-packages")]
    (site / "borrowed.pth").write_text("\n".join(ours) + "\n")
    return python


def pip(*words: str | Path) -> None:
    """Run pip with these arguments. Raises CalledProcessError."""
    command = [sys.executable, "-m", "pip", *map(str, words), "--quiet", "--disable-pip-version-check"]
    subprocess.run(command, capture_output=True, text=True, check=True)
