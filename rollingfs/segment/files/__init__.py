"""The work on chunk files that verbs share: surveys of folders, plans, copies. A function takes `At`, or is pure."""
