"""Setup shared by the packages below: ports, Debian packages, vulnerability audit."""
