"""What an error of the system says about the bytes on disk: mostly nothing.

Only a path that is missing, or is of another kind than we made, is something that the disk shows. All other errors say
that this process could not look, now: nobody may conclude from them that anything is damaged.
"""

import errno

from ..effects.disk_errors import NO_DESCRIPTOR

MISPLACED = (FileNotFoundError, FileExistsError, IsADirectoryError, NotADirectoryError)
_MAY_PASS = {*NO_DESCRIPTOR, errno.EINTR, errno.EAGAIN, errno.EACCES, errno.EPERM}


def may_pass(error: OSError) -> bool:
    """Return whether the error is about limits or rights of the process, so that the same call can succeed later."""
    return error.errno in _MAY_PASS


def is_limit(error: OSError) -> bool:
    """Return whether descriptors or memory are used up, so that no other file could be opened or read either."""
    return error.errno in NO_DESCRIPTOR
