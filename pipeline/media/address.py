"""Which network addresses may a source be fetched from?

The question is asked about the address that a name resolves to, and the connection is then made to that very address:
a name that resolves differently a moment later, a decimal or an IPv4-mapped spelling, a redirect - all end here.
"""

from __future__ import annotations

import socket
from collections.abc import Iterable
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

from pipeline.core.errors import SourceDown, SourceForbidden

Address = IPv4Address | IPv6Address

# Public to Python, yet answered by the machine's own cloud if at all: Azure's host, and the protocol assignments.
CLOUD_INTERNAL = (IPv4Network("168.63.129.16/32"), IPv4Network("192.0.0.0/24"))
NAT64 = IPv6Network("64:ff9b::/96")


def is_public(address: Address) -> bool:
    """Whether this is an address of the open internet, also when an IPv4 address is wrapped in it."""
    inner = _wrapped(address)
    if inner is not None:
        return is_public(inner)
    if any(address in network for network in CLOUD_INTERNAL):
        return False
    return address.is_global and not address.is_multicast and not address.is_reserved


def _wrapped(address: Address) -> IPv4Address | None:
    """The IPv4 address inside an IPv6 one: mapped, 6to4, Teredo, NAT64 or the old compatible form."""
    if isinstance(address, IPv4Address):
        return None
    if address.teredo is not None:
        return address.teredo[1]
    if address in NAT64 or (int(address) >> 32 == 0 and int(address) > 1):
        return IPv4Address(int(address) & 0xFFFFFFFF)
    return address.ipv4_mapped or address.sixtofour


def is_allowed(host: str, address: Address, exceptions: Iterable[str]) -> bool:
    """Whether we may connect: a public address, or one that an exception (host name or network) covers."""
    if is_public(address):
        return True
    inner = _wrapped(address) or address
    for exception in exceptions:
        if exception.lower().rstrip(".") == host.lower().rstrip("."):
            return True
        try:
            network = ip_network(exception, strict=False)
        except ValueError:
            continue
        if inner in network:
            return True
    return False


def exceptions_of(setting: str) -> tuple[str, ...]:
    """The entries of SOURCE_ALLOW_HOSTS."""
    return tuple(part.strip() for part in setting.split(",") if part.strip())


def resolve(host: str, port: int, exceptions: Iterable[str]) -> list[Address]:
    """The addresses of a host that may be connected to, all of them allowed; SourceForbidden if any is not."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as exc:
        raise SourceDown(f"The name {host} does not resolve.", service=f"source:{host}") from exc
    addresses = list(dict.fromkeys(ip_address(str(entry[4][0]).partition("%")[0]) for entry in found))
    allowed = tuple(exceptions)
    for address in addresses:
        if not is_allowed(host, address, allowed):
            raise SourceForbidden(f"{host} is not on the open internet; SOURCE_ALLOW_HOSTS can allow it.")
    return addresses
