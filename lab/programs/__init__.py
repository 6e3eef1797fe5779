"""Compile, start and stop the programs of a lab."""
