"""placeholder"""

DOCUMENT = b"{}"
