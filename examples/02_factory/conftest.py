"""The fixtures of unfork, for the tests of this project."""

pytest_plugins = ("unfork.testing.plugin",)
