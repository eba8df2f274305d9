"""All configuration in one table."""
