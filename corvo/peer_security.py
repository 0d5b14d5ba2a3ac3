"""How nodes prove to each other that they belong to one cluster."""

import msgspec


class PeerSecurity(msgspec.Struct, frozen=True, kw_only=True):
    """What a process uses for links to other nodes, and from them."""

    secret: str = ""
    """The cluster secret; empty only where all nodes are on one machine."""
    tls_cert: str = ""  # file with the certificate and its chain, in PEM; empty without TLS
    tls_key: str = ""
    tls_ca: str = ""  # file with the certificates of those who may sign for other nodes
