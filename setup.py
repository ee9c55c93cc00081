"""All metadata and tool settings are in setup.cfg."""

from setuptools import setup

setup()
