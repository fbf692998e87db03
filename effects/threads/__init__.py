"""Threads, all of which are started by `starting.py`, and executors that run jobs in them (`executors.py`)."""

from .executors import QUICK_NS as QUICK_NS
from .executors import Entry as Entry
from .executors import Executor as Executor
from .executors import FairQueue as FairQueue
from .executors import JobDropped as JobDropped
from .executors import ThreadExecutor as ThreadExecutor
from .executors import forget_locals as forget_locals
from .executors import give_way as give_way
from .starting import MORE_THREADS as MORE_THREADS
from .starting import CannotStartThread as CannotStartThread
from .starting import call_all as call_all
from .starting import call_in_thread as call_in_thread
from .starting import start_thread as start_thread
