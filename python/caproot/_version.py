"""Version of the package. The build compares it with the version of the crate."""

__version__ = "0.1.0"
