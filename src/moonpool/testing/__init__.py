"""What tests of Moonpool, ours and yours, are built from."""
