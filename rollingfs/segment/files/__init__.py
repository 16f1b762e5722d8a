"""The work that verbs share: adoption, intakes, moves, surveys of folders, plans and copies of chunk files."""
