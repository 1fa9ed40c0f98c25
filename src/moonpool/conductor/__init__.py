"""The conductor: which engine holds how much of a prompt, in which tier; one index for engines and pool."""
