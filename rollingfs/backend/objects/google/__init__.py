"""Google's storage, with the credentials and the connections of gcsfs."""
