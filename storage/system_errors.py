"""What an error of the operating system says about the bytes on disk: mostly nothing.

Only an error for a path that is missing, or that is a file where a folder should be or the reverse, says something
about the disk. All other errors say that this process could not look at the moment, so nobody may conclude from them
that something is damaged.
"""

import errno

from ..effects.disk_errors import NO_DESCRIPTOR

MISPLACED = (FileNotFoundError, FileExistsError, IsADirectoryError, NotADirectoryError)
_MAY_PASS = {*NO_DESCRIPTOR, errno.EINTR, errno.EAGAIN, errno.EACCES, errno.EPERM}


def may_pass(error: OSError) -> bool:
    """Return whether the error is about limits or rights of the process, so that the same call can succeed later."""
    return error.errno in _MAY_PASS


def is_limit(error: OSError) -> bool:
    """Return whether the error means that descriptors or memory are used up, so that no other file could be opened or
    read either.
    """
    return error.errno in NO_DESCRIPTOR
