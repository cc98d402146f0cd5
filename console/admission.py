"""Which requests of browsers are admitted, and the headers of every answer. Pure.

The console holds identities of the cluster for browsers that also show other pages. Three rules keep those pages out: a
request must name the console in `Host` (a page whose name was rebound to this address does not), a change must come
from the console's own page, and it must carry the session's CSRF token, which only that page can read.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from hmac import compare_digest
from ipaddress import ip_address
from typing import Final, NamedTuple
from urllib.parse import urlsplit

CSRF_HEADER: Final = "x-csrf-token"
BODY_TYPE: Final = "application/json"
BODY_BYTES_MAX: Final = 2 << 20
HEADERS: Final[Mapping[str, str]] = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self';"
        " base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}
"""No script but the console's own files, no inline script or style, nothing of other hosts, and no frames."""


class Refusal(NamedTuple):
    """An HTTP status and what it says."""

    status: int
    message: str


def host_refusal(host: str | None, names: Collection[str]) -> Refusal | None:
    """Of a request whose `Host` is neither an IP address, nor localhost, nor one of these names (in lower case)."""
    name = _name_in(host or "")
    if name is not None and (name == "localhost" or name in names or _is_ip_address(name)):
        return None
    return Refusal(421, "this console does not serve the host of the request: start it with --allowed-host")


def change_refusal(
    headers: Mapping[str, str], *, csrf: str | None, read_only: bool, is_login: bool = False
) -> Refusal | None:
    """Of a request that changes something. `csrf` is the session's; a login has no session yet."""
    origin = headers.get("origin")
    if origin is not None and urlsplit(origin).netloc.lower() != headers.get("host", "").lower():
        return Refusal(403, "the request comes from a page of another origin")
    if headers.get("content-type", "").split(";")[0].strip().lower() != BODY_TYPE:
        return Refusal(415, f"the body must be {BODY_TYPE}")
    if is_login:
        return None
    given = headers.get(CSRF_HEADER, "")
    if csrf is None or not compare_digest(given.encode(), csrf.encode()):
        return Refusal(403, "the CSRF token is missing or wrong: reload the page")
    if read_only:
        return Refusal(403, "this console is read-only")
    return None


def _name_in(host: str) -> str | None:
    """The host without its port, in lower case; None if it is malformed."""
    try:
        parts = urlsplit(f"//{host}")
        _ = parts.port
    except ValueError:
        return None
    if parts.username is not None or parts.path or parts.query or parts.fragment:
        return None
    return parts.hostname


def _is_ip_address(name: str) -> bool:
    try:
        ip_address(name)
    except ValueError:
        return False
    return True
