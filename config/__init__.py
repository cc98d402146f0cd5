"""Configuration: the keys by subject, each with its type, default, check and text, and the settings made from them."""
