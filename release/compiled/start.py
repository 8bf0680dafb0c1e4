"""Compiled modules of hifi: importing this package has Python use them."""

try:
    from hifi.runtime.compiled.import_hook import install
except ImportError:  # hifi-libs was uninstalled; every start of Python imports this
    pass
else:
    install(__file__.rpartition("/")[0])
