"""The web console: one page application over raylog's own clients, with the rights of the identity that logged in."""
