"""Has a platform's state moved since we looked? One conditional request with nothing but the standard library.

This is the door's little sister, for a command that most often ends here: no retries, no proxies, no translation.
Whatever is out of the ordinary answers *no*, and the real door is opened.
"""

from __future__ import annotations

from http.client import HTTPConnection, HTTPException, HTTPSConnection
from urllib.parse import urlencode, urlsplit

from arena_gitops import __version__

TIMEOUT_S = 5.0


def unmoved(url: str, token: str, *, stack: str, namespace: str, etag: str) -> bool:
    """Whether the server says 304 to the state of this etag. The token goes to the URL's origin only."""
    parts = urlsplit(url)
    kind = HTTPSConnection if parts.scheme == "https" else HTTPConnection
    query = urlencode({"stack": stack, "namespace": namespace})
    headers = {
        "Authorization": f"Bearer {token}",
        "Accept": "application/json",
        "Cache-Control": "no-cache",
        "If-None-Match": f'"{etag}"',
        "User-Agent": f"arena-gitops/{__version__}",
    }
    try:
        connection = kind(parts.netloc, timeout=TIMEOUT_S)
        try:
            connection.request("GET", f"{parts.path.rstrip('/')}/api/v1/state?{query}", headers=headers)
            return connection.getresponse().status == 304
        finally:
            connection.close()
    except (OSError, HTTPException, ValueError):
        return False
