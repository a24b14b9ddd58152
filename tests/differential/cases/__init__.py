"""The cases, one file per API or group of them."""
