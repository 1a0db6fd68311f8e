"""A script that is run unchanged: where its step loop is."""
