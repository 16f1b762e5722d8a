"""Writes: data that tasks send and stage, and the commit of a job or of a batch of a stream.

In: Arrow record batches. Out: header replacements. Must not be here: conversion of rows to bytes, which the formats do.
"""
