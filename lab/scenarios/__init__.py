"""Scenario files, and the code that reads them."""
