"""The modules of this folder are imported as `fuzz.…`, by its tests and by `run.py` alike."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
