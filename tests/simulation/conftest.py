"""The simulation's modules are imported as `simulation.…`, by its tests and by `run.py` alike."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
