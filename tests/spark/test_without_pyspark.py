"""The connector without pyspark: one line that names the extra to install, wherever it is imported."""

import subprocess
import sys

import pytest

WITHOUT = "import sys; sys.modules['pyspark'] = None; "  # each import of it raises ModuleNotFoundError


@pytest.mark.parametrize("statement", ["from fencepost.spark import FencepostDataSource", "import pyspark_fencepost"])
def test_an_import_without_pyspark_names_the_extra_to_install(statement):
    done = subprocess.run([sys.executable, "-c", WITHOUT + statement], capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stderr.count("Traceback") == 1
    last = done.stderr.splitlines()[-1]
    assert last.startswith("ModuleNotFoundError: fencepost's Spark connector needs pyspark, ")
    assert last.endswith("pip install 'fencepost[spark]'")


def test_importing_pyspark_fencepost_without_pyspark_raises_an_error_naming_pyspark():
    code = "\ntry:\n    import pyspark_fencepost\nexcept ModuleNotFoundError as error:\n    print(error.name)"
    done = subprocess.run([sys.executable, "-c", WITHOUT + code], capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("pyspark\n", "")
