"""Ordered storage: keys, stores, and tables that derive their indexes from documents."""
