"""On which file system a directory is, by the table that Linux keeps."""

import pytest
from fencepost.effects.objects import BadUrl, mounts, open_shared
from fencepost.effects.objects.mounts import mount_of

TABLE = r"""
22 1 259:2 / / rw,relatime shared:1 - ext4 /dev/root rw,discard
40 22 0:35 / /mnt rw,relatime shared:5 - nfs4 server:/a rw,vers=4.2,hard,proto=tcp
41 22 0:36 / /mnt/with\040space rw,relatime - nfs server:/b rw,vers=3,noac
42 22 0:37 / /over rw - nfs4 server:/c rw
43 42 0:38 / /over rw - xfs /dev/sdb rw
line that is none
"""


@pytest.mark.parametrize(
    ("path", "kind", "is_cached"),
    [
        ("/var/store", "ext4", False),
        ("/mnt", "nfs4", True),
        ("/mnt/store/not/made/yet", "nfs4", True),
        ("/mnt/with space/store", "nfs", False),
        ("/mntother", "ext4", False),
        ("/over/store", "xfs", False),
    ],
)
def test_mount_of_returns_the_nearest_mount_above_a_path(path, kind, is_cached):
    mount = mount_of(path, TABLE)
    assert mount is not None
    assert (mount.kind, mount.is_cached) == (kind, is_cached)


def test_mount_of_returns_none_without_a_mount_table(monkeypatch):
    assert mount_of("/x", "") is None
    monkeypatch.setattr(mounts, "TABLE", "/none")
    assert mount_of("/x") is None


def test_a_journal_on_nfs_is_refused_unless_it_is_mounted_with_noac(tmp_path, monkeypatch):
    table = tmp_path / "mountinfo"
    table.write_text(f"1 0 0:1 / / rw - ext4 x rw\n2 1 0:2 / {tmp_path} rw - nfs4 server:/a rw\n")
    monkeypatch.setattr(mounts, "TABLE", str(table))
    with pytest.raises(BadUrl, match="mounted without noac"):
        open_shared(f"file://{tmp_path}/store")
    table.write_text(table.read_text().replace("server:/a rw", "server:/a rw,noac"))
    assert open_shared(f"file://{tmp_path}/store").where == f"file://{tmp_path}/store"
