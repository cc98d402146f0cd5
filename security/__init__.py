"""Authentication and authorization: principals, authentication exchanges, access control lists. Sans-IO."""
