"""The libraries that only some commands need, and which extra of the package installs each."""

import importlib.util

from .failures import Failure

EXTRAS = {  # name to import: (package, extra)
    "aiohttp": ("aiohttp", "console"),
    "aiokafka": ("aiokafka", "demo"),
    "confluent_kafka": ("confluent-kafka", "demo"),
    "hdrh": ("hdrhistogram", "bench"),
    "matplotlib": ("matplotlib", "bench"),
    "obstore": ("obstore", "store"),
    "opentelemetry": ("opentelemetry-sdk", "bench"),
    "prometheus_client": ("prometheus-client", "console"),
    "pyarrow": ("pyarrow", "spark"),
    "pyspark": ("pyspark", "spark"),
}


def require(command: str, *modules: str) -> None:
    """Raise Failure for the first of these modules that is not installed."""
    for module in modules:
        if importlib.util.find_spec(module) is None:
            raise _missing(f"{command} needs", module)


def explain_missing(error: ModuleNotFoundError) -> Failure | None:
    """Return the failure for a failed import; None if no extra of the package has the module, because that is a bug."""
    module = (error.name or "").partition(".")[0]
    return _missing("this command needs", module) if module in EXTRAS else None


def _missing(who_needs: str, module: str) -> Failure:
    """Return the failure for a module that is not installed, with the extra that installs it."""
    package, extra = EXTRAS[module]
    return Failure(f"{who_needs} {package}, which is not installed", f"pip install 'fencepost[{extra}]'")
