"""The erasure and the export of a person: all that is stored of a user, in every database."""
