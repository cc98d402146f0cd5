"""Who is asking: authentication exchanges as sans-IO machines."""
