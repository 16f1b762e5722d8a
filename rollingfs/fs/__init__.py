"""The faces: the fsspec filesystem, and the handles and file objects that users hold.

In: URLs, options and calls as fsspec and users make them, blocking or awaited. Out: what they expect.
Must not be here: rules of the format or of commits; what a method does stands one step below.
"""
