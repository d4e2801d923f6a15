"""The pytest plug-in: one fixture a service."""
