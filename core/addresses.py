"""IP addresses in the spelling in which those of clients are reported."""

from __future__ import annotations

from ipaddress import IPv6Address, ip_address


def canonical_address(text: str) -> str:
    """IPv6 compressed, and IPv4-mapped as IPv4: `10.0.0.1` for `::ffff:10.0.0.1`. Raises ValueError."""
    address = ip_address(text)
    return str((isinstance(address, IPv6Address) and address.ipv4_mapped) or address)


def canonical_host(text: str) -> str:
    """That of an address; the text itself if it is none."""
    try:
        return canonical_address(text)
    except ValueError:
        return text
