"""Fair shares: the part of the server that one subject may take, whatever the others ask for."""
