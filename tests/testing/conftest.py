"""Tests of the plugin run pytest inside pytest."""

pytest_plugins = "pytester"
