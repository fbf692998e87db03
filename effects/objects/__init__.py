"""Object stores, such as a bucket of S3: objects with names, which are created whole and never changed.

The interface is in `interface.py`, a store in a directory in `directory.py`, S3, GCS and Azure in `remote.py`;
`urls.py` opens one by its URL, `mounts.py` says on which file system a directory is. A simulated one is in
`effects/simulated/objects.py`.
"""

from .interface import Content as Content
from .interface import Exists as Exists
from .interface import Found as Found
from .interface import Missing as Missing
from .interface import Objects as Objects
from .interface import ObjectsError as ObjectsError
from .interface import Refused as Refused
from .interface import Unclear as Unclear
from .mounts import Mount as Mount
from .urls import BadUrl as BadUrl
from .urls import is_url as is_url
from .urls import mount_of_url as mount_of_url
from .urls import open_at_each_address as open_at_each_address
from .urls import open_objects as open_objects
from .urls import open_shared as open_shared
