"""The directory: soft state, built only from what owners tell it."""
