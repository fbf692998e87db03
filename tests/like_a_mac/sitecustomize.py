"""Makes a CPython on Linux look as it does on macOS: put this folder on PYTHONPATH.

The rule: what CPython has on Linux alone is gone before anything else is imported; what it has on macOS alone is there,
with macOS's number, which Linux refuses (EINVAL). Flags of pwritev and preadv raise what they raise there. What cannot
be had in this way is the system itself: kqueue, APFS, its sockets and limits, an F_FULLFSYNC that does something.
Sources: "Availability" in CPython's documentation of os, select, socket, fcntl, signal, resource and time;
Modules/posixmodule.c (pwritev, preadv).
"""

import importlib
import os
import re
import sys
import sysconfig
import types

LINUX_ALONE = {  # with *, all names that begin so; select comes first, as modules choose a selector when imported
    "select": "EPOLL* POLLMSG POLLRDHUP epoll",
    "os": """
        CLONE_* EFD_* GRND_* MFD_* PIDFD_* POSIX_FADV_* P_PIDFD* RWF_* SCHED_BATCH SCHED_IDLE SCHED_RESET_ON_FORK
        SPLICE_* TFD_* XATTR_* O_DIRECT O_LARGEFILE O_NOATIME O_PATH O_RSYNC O_TMPFILE copy_file_range eventfd*
        fdatasync getrandom getres* getxattr listxattr memfd_create pidfd_open pipe2 posix_fa* posix_openpt
        removexattr sched_get* sched_param* sched_rr* sched_set* setns setres* setxattr splice timerfd_* unshare
    """,
    "socket": """
        AF_ALG* AF_CAN* AF_NETLINK* AF_PACKET* AF_QIPCRTR* AF_RDS* AF_TIPC* AF_VSOCK* ALG_* CAN_* IPPROTO_MPTCP*
        IP_BIND_ADDRESS_NO_PORT* IP_TRANSPARENT* MSG_CMSG_CLOEXEC* MSG_CONFIRM* MSG_ERRQUEUE* MSG_FASTOPEN*
        MSG_MORE* NETLINK_* PACKET_* PF_CAN* PF_PACKET* PF_RDS* RDS_* SOCK_CLOEXEC* SOCK_NONBLOCK* SO_BINDTODEVICE*
        SO_DOMAIN* SO_INCOMING_CPU* SO_MARK* SO_PASS* SO_PEER* SO_PRIORITY* SO_PROTOCOL* SO_VM_SOCKETS*
        TCP_CONGESTION* TCP_CORK* TCP_DEFER_ACCEPT* TCP_INFO* TCP_KEEPIDLE* TCP_LINGER2* TCP_QUICKACK* TCP_SYNCNT*
        TCP_USER_TIMEOUT* TCP_WINDOW_CLAMP* TIPC_* UDPLITE_* VMADDR_*
    """,
    "fcntl": """
        DN_* FICLONE* F_ADD_SEALS* F_GETLEASE* F_GETPIPE_SZ* F_GETSIG* F_GET_SEALS* F_NOTIFY* F_OFD_* F_SEAL_*
        F_SETLEASE* F_SETPIPE_SZ* F_SETSIG* LOCK_MAND* LOCK_READ* LOCK_RW* LOCK_WRITE*
    """,
    "signal": "SIGCLD SIGPOLL SIGPWR SIGRT* SIGSTKFLT pidfd_* sigtimedwait sigwaitinfo",
    "resource": "RLIMIT_MSGQUEUE* RLIMIT_NICE* RLIMIT_RT* RLIMIT_SIGPENDING* RUSAGE_THREAD prlimit",
    "time": "CLOCK_BOOTTIME CLOCK_TAI pthread_getcpuclockid",
}
MACOS_ALONE = {"F_FULLFSYNC": 51, "F_NOCACHE": 48, "F_RDADVISE": 44}  # sys/fcntl.h

for name, patterns in LINUX_ALONE.items():
    module = importlib.import_module(name)
    gone = list(filter(re.compile("|".join(patterns.split()).replace("*", ".*")).fullmatch, vars(module)))
    for each in gone:
        delattr(module, each)
    if hasattr(module, "__all__"):
        module.__all__ = [each for each in module.__all__ if each not in gone]
vars(sys.modules["fcntl"]).update(MACOS_ALONE)


def without_flags(call):
    def as_there(fd, buffers, position, flags=0, /):
        if flags:
            raise NotImplementedError(f"{call.__name__}2: flags unavailable on this platform")
        return call(fd, buffers, position)

    return as_there


os.pwritev, os.preadv = without_flags(os.pwritev), without_flags(os.preadv)
sysconfig.get_config_vars()  # how this Python was built is in a file with the platform's name; they are kept
sys.platform = "darwin"
sys.modules["_scproxy"] = types.SimpleNamespace(_get_proxies=dict, _get_proxy_settings=dict)  # for urllib.request
