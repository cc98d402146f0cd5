"""The request handlers of a controller, one file per API."""
