"""The version of this installation."""

from importlib.metadata import PackageNotFoundError, version

try:
    __version__ = version("redbatch")
except PackageNotFoundError:  # a checkout that is not installed
    __version__ = "0+unknown"

__all__ = ["__version__"]
